"""One site's relay node: its stages wired, its state, its process, its admin port."""
