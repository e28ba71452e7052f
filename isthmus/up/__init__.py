"""`isthmus up`: the supervisor of the processes that run a mesh on this machine."""
