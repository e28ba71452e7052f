"""What follows from a mesh on paper: ways, single points, availability, disk. Runs nothing."""
