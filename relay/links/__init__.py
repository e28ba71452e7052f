"""From one site's log to another's: sender, receiver, and the frames between them."""
