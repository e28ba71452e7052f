"""A mesh at its brokers: addresses, rights, and what is declared there."""
