"""Cost of each part of a hop to the brokers, alone: see `__main__`."""
