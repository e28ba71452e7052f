"""A whole mesh in one process, in virtual time, with faults out of a seed: the real relay, run."""
