"""Does what is published at a site under a key leave it, and for whom? Pure."""

from __future__ import annotations

from federation.destinations import DestinationIndex, TopicIndex, addressing_of
from federation.mesh import Exchange, Mesh
from federation.mesh_file.nearest import nearest


def why_it_stays(mesh: Mesh, site: str, name: str, key: str) -> str:
    """Why nothing of it gets to another site; empty if some of it may."""
    exchange = mesh.exchanges.get(name)
    here = f"only queues at {site} get it"
    if exchange is None:
        return f"{name!r} is no exchange of the mesh, so {here}{_meant(mesh, name)}"
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
    """Why nothing of that exchange comes to the site from others; empty if some may."""
    exchange = delivered_to(mesh, name)
    if exchange is None:
        said = f"{name!r} is no exchange of the mesh: nothing comes from other sites"
        return said + _meant(mesh, name)
    if not exchange.reaches(site):
        whose = "is in its `never_via`" if site in exchange.never_via else "is not in its `to`"
        return f"nothing of {exchange.name} comes from other sites: {site} {whose}"
    return ""


def delivered_to(mesh: Mesh, name: str) -> Exchange | None:
    """The exchange of the mesh of that name, or that is delivered to one of that name."""
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


def _meant(mesh: Mesh, name: str) -> str:
    meant = nearest(name, list(mesh.exchanges))
    return f"; did you mean {meant!r}?" if meant else ""
