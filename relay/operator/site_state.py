"""State of a site, as its node reports the state to people and to metrics."""

from __future__ import annotations

from enum import StrEnum


class SiteState(StrEnum):
    """States of a site, from bad to good. A site of several slots has the first of its slots'."""

    STOPPED = "stopped"
    DOWN = "down"
    BLOCKED = "blocked"
    STARTING = "starting"
    STANDBY = "standby"
    """Another node runs the site."""
    # An order is carried out once no slot is without it.
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"
    QUIESCING = "quiescing"
    QUIESCED = "quiesced"
    """An order has let the site stand with nothing under way."""
