"""RabbitMQ on this machine: installation, configuration and processes."""
