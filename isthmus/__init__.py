"""Isthmus puts the packages together: commands, local brokers, supervisor."""
