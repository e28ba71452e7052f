"""A TCP proxy with delay, rate, loss of a direction and half-open connections."""
