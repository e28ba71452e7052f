"""Batches of messages, and their bytes."""
