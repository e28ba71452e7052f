"""Who is linked to whom, and who dials: every link, and rows of those that are alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from federation.mesh import Link, Mesh
from federation.planning.routes import Pair
from federation.planning.site_classes import SiteGroups


def dials(link: Link) -> list[str]:
    """The ends that connect to another site's broker."""
    return [end for end in (link.sender, link.receiver) if end != link.meeting]


def link_told(link: Link) -> dict[str, Any]:
    """One link, for programs."""
    return {
        "from": link.sender,
        "to": link.receiver,
        "meets_at": link.meeting,
        "dials": dials(link),
        "via": link.via,
        "availability": link.availability,
        **({} if link.max_rate is None else {"max_rate": str(link.max_rate)}),
    }


def link_rows(mesh: Mesh, groups: SiteGroups) -> Iterator[dict[str, Any]]:
    """Links between the same groups that meet in the same way, both ways in one row."""
    found: dict[tuple[int, int, str], list[Link]] = {}
    for link in mesh.links:
        ends = groups.number[link.sender], groups.number[link.receiver]
        found.setdefault((*ends, _meeting(link)), []).append(link)
    turned = {"sender": "receiver", "receiver": "sender"}
    done: set[tuple[int, int, str]] = set()
    for key, links in found.items():
        if key in done:
            continue
        sender, receiver, meeting = key
        way_back = {(link.receiver, link.sender) for link in links}
        # Back by the same broker, or each way by that of its own receiver (or sender).
        same = receiver, sender, turned.get(meeting, meeting)
        each = receiver, sender, meeting
        back = next((k for k in (same, each) if _ends(found.get(k, ())) == way_back), None)
        if back is not None:
            done.add(back)
        labels = groups.groups[sender].label, groups.groups[receiver].label
        yield {
            "from": labels[0],
            "to": labels[1],
            "both_ways": back is not None,
            "count": len(links) // 2 if back == key else len(links),
            **_meets(meeting, *labels, each_way=back is not None and back != same),
            "via": sum(link.via is not None for link in links),
            "availability": span(link.availability for link in links),
        }


def _ends(links: Iterable[Link]) -> set[Pair]:
    return {(link.sender, link.receiver) for link in links}


def _meeting(link: Link) -> str:
    named = {link.sender: "sender", link.receiver: "receiver"}
    return named.get(link.meeting, link.meeting)


def _meets(meeting: str, sender: str, receiver: str, *, each_way: bool) -> dict[str, Any]:
    if each_way and meeting == "receiver":
        return {"meets_at": "each way at its receiver's", "dials": "the sender"}
    if each_way and meeting == "sender":
        return {"meets_at": "each way at its sender's", "dials": "the receiver"}
    if meeting == "sender":
        return {"meets_at": sender, "dials": receiver}
    if meeting == "receiver":
        return {"meets_at": receiver, "dials": sender}
    return {"meets_at": meeting, "dials": "both ends"}


def span(values: Iterable[float]) -> Mapping[str, float]:
    """The least and the most of them."""
    found = list(values)
    return {"least": min(found), "most": max(found)}
