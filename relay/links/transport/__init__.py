"""Connections that carry a link's frames: the Protocol, over RabbitMQ and in memory."""
