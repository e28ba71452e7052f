"""`isthmus bench`: what an operator's own mesh carries, and how fast."""
