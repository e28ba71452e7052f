"""Nightly audit of delivery between sites: Spark jobs over the ledgers' Parquet exports."""
