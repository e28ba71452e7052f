"""Problems of a mesh file: places, texts and remedies."""
