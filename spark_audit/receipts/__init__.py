"""What publishers and consumers wrote down themselves."""
