"""Rules that the keys of a mesh file must satisfy together."""
