"""`isthmus repair`: which messages were lost, which sites still have them, and having them sent."""
