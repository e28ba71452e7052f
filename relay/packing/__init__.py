"""Packing from a site's egress queues into its log, and the knowledge left for the next packer."""
