"""Administration of a node over HTTP: access, status, metrics, and an operator's orders."""
