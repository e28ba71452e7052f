"""Journal of a slot: a store's writes, in order, where another node of the site finds them."""
