"""What was packed against what was settled: by sums, by batch, message for message."""
