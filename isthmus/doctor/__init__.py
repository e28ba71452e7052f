"""Examination of all that a mesh needs, with remedies (`isthmus doctor`)."""
