"""Mesh files that were used on this machine before, and what a new one changes of them."""
