"""Orders of a person to a site: mend, repair, hold, accept a gap, leave the mesh."""
