"""Shared scans: one reading of the log serves all readers that are behind."""
