"""What every stage writes down of every message, and the files that audits read."""
