"""What `isthmus plan` tells and draws: a report, and tables and pictures made of it."""
