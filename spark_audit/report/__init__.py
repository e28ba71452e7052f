"""Outcome of an audit as text, JSON, tables and one HTML page."""
