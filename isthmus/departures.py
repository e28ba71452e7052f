"""Reasons why a published message stays at its site. Pure."""

from __future__ import annotations

from federation.destinations import DestinationIndex, TopicIndex, addressing_of
from federation.mesh import Exchange, Mesh
from federation.wording import nearest


def why_it_stays(mesh: Mesh, site: str, name: str, key: str) -> str:
    """Return why no other site gets messages of the exchange under the key; empty if some may."""
    exchange = mesh.exchanges.get(name)
    here = f"only queues at {site} get it"
    if exchange is None:
        return f"{name!r} is no exchange of the mesh, so {here}{_suggestion(mesh, name)}"
    if not exchange.leaves(site):
        whose = "is in its `never_via`" if site in exchange.never_via else "is not in its `from`"
        return f"what is published to {name} at {site} stays there: {site} {whose}"
    if not _takes(exchange, key):
        keys = ", ".join(exchange.keys)
        return f"no key of {name} takes {key!r} out of the site ({keys}), so {here}"
    addressing = addressing_of(mesh, exchange, site)
    if addressing is not None:
        index = DestinationIndex(addressing)
        if index.of(key.encode()) == index.nobody:
            return f"no other site wants {key!r} of {name}, so {here}"
    return ""


def why_nothing_comes(mesh: Mesh, site: str, name: str) -> str:
    """Return why the site gets no messages of the exchange from others; empty if some may come."""
    exchange = delivered_to(mesh, name)
    if exchange is None:
        reason = f"{name!r} is no exchange of the mesh: nothing comes from other sites"
        return reason + _suggestion(mesh, name)
    if not exchange.reaches(site):
        whose = "is in its `never_via`" if site in exchange.never_via else "is not in its `to`"
        return f"nothing of {exchange.name} comes from other sites: {site} {whose}"
    return ""


def delivered_to(mesh: Mesh, name: str) -> Exchange | None:
    """Return the exchange with the name, or the exchange that delivers to the name."""
    if name in mesh.exchanges:
        return mesh.exchanges[name]
    return next((one for one in mesh.exchanges.values() if one.delivers_to == name), None)


def _takes(exchange: Exchange, key: str) -> bool:
    match exchange.type:
        case "direct":
            return key in exchange.keys
        case "topic":
            index = TopicIndex()
            for pattern in exchange.keys:
                index.add(pattern.encode(), "leaves")
            return bool(index.sites_for(key.encode()))
    return True


def _suggestion(mesh: Mesh, name: str) -> str:
    name_meant = nearest(name, list(mesh.exchanges))
    return f"; did you mean {name_meant!r}?" if name_meant else ""
