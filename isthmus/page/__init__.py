"""Page of a mesh in a browser: what the nodes report, live, and an operator's orders."""
