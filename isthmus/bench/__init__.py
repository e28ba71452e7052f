"""Measurement of a mesh with test messages: rates, latencies and losses (`isthmus bench`)."""
