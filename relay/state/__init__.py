"""State of a node, in a store with atomic commits."""
