"""The ledgers of all sites: their files, their rows, and whether they are whole."""
