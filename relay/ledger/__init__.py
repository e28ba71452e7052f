"""Ledger: rows of every stage about every message, and the files that audits read."""
