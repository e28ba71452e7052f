"""What a node remembers on disk, and its bytes."""
