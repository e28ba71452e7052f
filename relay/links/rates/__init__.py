"""Rates of what a site sends over its links: the budget, and the gates before the lanes."""
