"""What makes two messages the same, and the barrier that stops the second."""
