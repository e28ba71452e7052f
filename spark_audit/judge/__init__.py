"""What a difference means: who was to have a message, how far each site has come, the verdict."""
