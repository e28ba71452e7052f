"""Status of a mesh: what its nodes report, put together."""
