"""Parts of a site with several nodes, as servers on loopback: Cassandra and ZooKeeper."""
