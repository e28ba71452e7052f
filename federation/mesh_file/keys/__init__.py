"""Keys of the mesh file: their types, defaults and meaning, and the forms of their values."""
