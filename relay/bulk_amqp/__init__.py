"""The hot AMQP path: whole buffers in, whole buffers out. Knows nothing of the mesh."""
