"""RabbitMQ on this machine: which one is installed, how it is set up, and its processes."""
