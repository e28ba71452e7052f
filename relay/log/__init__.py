"""A site's durable log: a single writer, readers, and a node's knowledge of the log. On RabbitMQ a
stream.
"""
