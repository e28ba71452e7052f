"""The site's log as a RabbitMQ stream: the twin of `memory_log` for real brokers."""
