"""What travels: batches, and their bytes."""
