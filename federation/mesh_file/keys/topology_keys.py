"""Keys of the mesh's shape in the mesh file: the topology, and single links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BeforeValidator

from federation.mesh_file.keys.lane_values import MaxRate
from federation.mesh_file.keys.multicast_keys import MulticastKeys
from federation.mesh_file.keys.values import Availability, HostPortText, OneOrMore, Section, key


class LinkKeys(Section):
    """A connection from a site to its neighbour."""

    sender: str = key(..., "the site that sends", alias="from")
    receiver: str = key(..., "its neighbour", alias="to")
    both: bool | None = key(None, "links both ways", without="the mesh's own `both`")
    dial: str | None = key(
        None,
        "site whose broker both ends connect to: `from`, `to` or any other; a site behind NAT"
        " dials out, so name the other end",
        without="the receiver's, for each way; in a tree the parent's, in a hub mesh the hub's",
    )
    via: HostPortText | None = key(
        None,
        "address to dial instead of the broker's own: a port forward, a tunnel",
        without="the broker's own address",
    )
    max_rate: MaxRate | None = key(
        None,
        "rate of the link, for each way separately; as the mesh's `max_rate`",
        trades="less: others have more of the line, and a backlog takes longer",
        without="the mesh's",
    )
    availability: Availability = key(
        0.99,
        "part of the time that the line works",
        unit="0 to 1",
        trades="only `isthmus plan` reads it: true figures make its forecast true",
    )


class RingKeys(Section):
    """Each site linked to the next, in the order in which they stand, and the last to the first."""

    both: bool | None = key(
        None,
        "both ways round",
        trades="both: any one link or site may fail; each batch crosses the WAN up to twice",
        without="the mesh's own `both`",
    )


class TreeKeys(Section):
    """Each site linked both ways with its parent, whose broker is dialled."""

    root: str | None = key(None, "the site at the top", without="the only site without a parent")
    children: dict[str, list[str]] = key({}, "the sites below each; or give `parent` at the sites")


class HubKeys(Section):
    """Each site linked both ways with its hub, whose broker is dialled; hubs with each other."""

    center: OneOrMore = key(..., "the hub, or several, or their tag")


class NoKeys(Section):
    """A shape without keys."""


def _short_for(name: str) -> Callable[[object], object]:
    """Return a validator for a section of which a word, or a list of words, is short for the key
    `name`.
    """

    def whole(value: object) -> object:
        return {name: value} if isinstance(value, str | list) else value

    return whole


class TopologyKeys(Section):
    """Exactly one shape. `topology: ring` is short for `topology: {ring: {}}`, `{tree: SITE}` for
    `{tree: {root: SITE}}` and `{hub: SITE}` for `{hub: {center: SITE}}`.
    """

    ring: RingKeys | None = key(
        None,
        "each site linked to the next",
        trades="the fewest links; far sites are many hops away, and two cuts part it",
    )
    complete: NoKeys | None = key(
        None,
        "each site linked to every other; only the origin sends a message",
        trades="one hop to anywhere; no other way for a pair whose link is cut",
    )
    tree: (
        Annotated[
            TreeKeys,
            BeforeValidator(_short_for("root"), json_schema_input_type=str | TreeKeys | None),
        ]
        | None
    ) = key(
        None,
        "each site linked with its parent",
        trades="the fewest links; the loss of one cuts off the sites below it",
    )
    hub: (
        Annotated[
            HubKeys,
            BeforeValidator(_short_for("center"), json_schema_input_type=str | list[str] | HubKeys),
        ]
        | None
    ) = key(
        None,
        "each site linked with one hub or more, hubs with each other",
        trades="two hops to anywhere; hubs carry all traffic",
    )
    custom: NoKeys | None = key(None, "the `links`, and nothing else")
    multicast: MulticastKeys | None = key(
        None,
        "each site linked with each of a few replayers, and before these links one multicast"
        " group, to which a site sends a message once for all others",
        trades="one copy on the sender's line for all sites; the network has to carry"
        " IP multicast, or all comes by the links, a second later",
    )

    def kinds(self) -> list[str]:
        return [kind for kind in TOPOLOGIES if getattr(self, kind) is not None]


TOPOLOGIES = tuple(TopologyKeys.model_fields)
ShortTopology = Literal["ring", "complete", "tree", "custom"]
"""Topologies that may stand alone: a hub mesh must name its hub, a group has an address."""


def whole_topology(value: object) -> object:
    """Return the mapping that a short form stands for."""
    if isinstance(value, dict):
        return {kind: {} if keys is None else keys for kind, keys in value.items()}
    return {value: {}} if isinstance(value, str) else value
