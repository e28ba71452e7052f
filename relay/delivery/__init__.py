"""From a site's log to its own broker: the deliverer, flow by flow, past the barrier."""
