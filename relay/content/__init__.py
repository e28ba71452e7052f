"""Content store: the bytes of large messages, kept once for a site beside its logs."""
