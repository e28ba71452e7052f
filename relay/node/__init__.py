"""A site's node: its stages, their order, and the process that runs several nodes."""
