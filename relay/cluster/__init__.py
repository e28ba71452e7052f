"""Nodes of one site that take turns: one runs the site, the others follow and take over."""
