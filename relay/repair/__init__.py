"""Sending lost messages again, out of a site's own log."""
