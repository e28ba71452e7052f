"""History of one message from the ledgers of all sites, without Spark."""
