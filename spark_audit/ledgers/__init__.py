"""Ledgers of all sites: files, rows, and completeness."""
