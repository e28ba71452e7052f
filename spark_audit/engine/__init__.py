"""Spark: a session, what it is doing, and tables cut off from where they came from."""
