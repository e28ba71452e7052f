"""What an outage of links or sites would cost: `isthmus simulate FILE --fail ...`."""
