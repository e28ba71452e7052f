"""Planning of a mesh on paper: ways, single points of failure, availability, disk. Runs nothing."""
