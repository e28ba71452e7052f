"""NATS JetStream as a way: a leaf node sources the origin's stream at each destination."""
