"""A site's durable log: one writer, readers, and what is known of it. On RabbitMQ a stream."""
