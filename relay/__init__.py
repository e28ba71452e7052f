"""A message's way through a site: egress, packer, log, links, deliverer."""
