"""Cost of an outage of links or sites: `isthmus simulate FILE --fail ...`."""
