"""Spark: the session, its progress, and tables cut off from their plans."""
