"""Change of a site's slots, while the site stands: the states of other slots from the present."""
