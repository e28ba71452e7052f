"""Routing keys for the kinds of messages that sites' `wants` tell apart. Pure."""

from __future__ import annotations

from federation.mesh import Exchange, Mesh
from federation.planning.log_spread import ALL_KEYS


def keys_of(mesh: Mesh, exchange: Exchange) -> list[str]:
    """A routing key for each kind of message that sites' `wants` tell apart; at least one."""
    narrowed = {
        frozenset(patterns): sorted(patterns)[0]
        for name, site in mesh.sites.items()
        if exchange.reaches(name)
        and (patterns := site.wants.get(exchange.name)) is not None
        and ALL_KEYS not in patterns
    }
    if exchange.type != "topic":
        return list(narrowed.values()) or ["key"]
    return [_key_like(pattern) for pattern in narrowed.values()] or ["key"]


def _key_like(pattern: str) -> str:
    """A key that the topic pattern matches."""
    words = (word for word in pattern.split(".") if word != "#")
    return ".".join("any" if word == "*" else word for word in words)
