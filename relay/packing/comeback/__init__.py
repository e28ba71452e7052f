"""Messages that egress hands out again after a packer's end, compared with the end of the log."""
