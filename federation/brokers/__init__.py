"""A mesh at its brokers: addresses, rights, and the objects declared there."""
