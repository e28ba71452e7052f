"""Administration of a node over HTTP: who may ask, and what there is to ask."""
