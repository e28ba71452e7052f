"""Receipts that publishers and consumers write themselves."""
