"""The whole life of one message, from the ledgers of all sites; needs no Spark."""
