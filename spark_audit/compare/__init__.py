"""Comparison of packed with settled messages: by sums, by batch, message for message."""
