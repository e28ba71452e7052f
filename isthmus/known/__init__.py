"""Meshes used on this machine before, and what a new mesh file changes."""
