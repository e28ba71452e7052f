"""Rules that the keys of a mesh file must satisfy together. Pure.

Each rule yields a Violation for each mistake, raises nothing and goes on where it can, so that one
run reports all mistakes.
"""
