"""Supervisor of the processes that run a mesh on this machine (`isthmus up`)."""
