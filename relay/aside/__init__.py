"""What was put aside, dead letters and quarantine, and the operator's work on it."""
