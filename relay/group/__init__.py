"""A group of sites to which one transmission brings a batch, in front of their links."""
