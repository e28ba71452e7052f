"""A lock that a majority of a cluster's nodes vouches for, in place of an exclusive queue."""
