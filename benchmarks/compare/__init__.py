"""Isthmus beside federation and shovel, on the same brokers, in turn, under the same load."""
