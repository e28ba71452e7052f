"""Identity of messages, and the barrier that stops duplicates."""
