"""Delivery from a site's log to the site's own broker, flow by flow, past the barrier."""
