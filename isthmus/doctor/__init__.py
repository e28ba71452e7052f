"""Looks at all that a mesh needs to work, and says what to do about what is not there."""
