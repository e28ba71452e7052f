"""Links from one site's log to another's: sender, receiver, transport, rates."""
