"""Steps of `isthmus demo`."""
