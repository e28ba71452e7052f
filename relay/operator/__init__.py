"""Work that a person orders of a running node: mend, repair, pause, accept a gap, leave."""
