"""From a site's egress queues into its log: the packer, and what its successor must know."""
