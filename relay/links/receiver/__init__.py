"""The receiving end of a link: its state machine, its driver, and what they keep."""
