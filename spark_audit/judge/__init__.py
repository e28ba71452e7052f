"""Meaning of a difference: expected sites, positions of each site, the verdict."""
