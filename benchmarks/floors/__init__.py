"""What each part of a hop costs the brokers, alone: see `__main__`."""
