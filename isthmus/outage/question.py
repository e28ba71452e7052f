"""Question about an outage: what fails, for how long, at which load. Pure.

`paris-tokyo` names both directions of a link, as far as the mesh has them; `paris->tokyo` one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from federation.mesh import Mesh
from federation.mesh_file.quantities import BadSize, parse_rate
from federation.planning.disk_need import PublishRates
from federation.wording import nearest
from isthmus.plan.expected_load import BadLoad, parse_rates
from simulation.outage import Failure

LINE_BYTES_PER_S = 12_500_000.0
"""Default capacity of a line: 100 Mbit/s."""
_BARE = re.compile(r"[0-9.]+[kM]?")


class BadQuestion(ValueError):
    """Invalid question; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Capacity of lines in bytes a second each way; `links` by the names of directed links."""

    everywhere: float = LINE_BYTES_PER_S
    links: Mapping[str, float] = field(default_factory=dict)

    def of(self, link: str) -> float:
        return self.links.get(link, self.everywhere)


@dataclass(frozen=True, slots=True)
class Question:
    """Validated question: `names` as typed, `seconds` of outage, `size` of a body in bytes."""

    names: tuple[str, ...]
    failure: Failure
    seconds: float
    rates: PublishRates
    size: int
    lines: Lines
    compression: float = 1.0


def parse_failure(names: Sequence[str], mesh: Mesh) -> Failure:
    """Read the names of failing sites and links. Raises BadQuestion."""
    links: set[str] = set()
    sites: set[str] = set()
    for name in names:
        if name in mesh.sites:
            sites.add(name)
        else:
            links |= links_named(name, mesh)
    if sites == set(mesh.sites):
        raise BadQuestion("every site of the mesh is away: then nothing is published either")
    return Failure(frozenset(links), frozenset(sites))


def links_named(name: str, mesh: Mesh) -> set[str]:
    """Return the directed links of a name. Raises BadQuestion."""
    one_way = "->" in name
    found = set()
    for link in mesh.links:
        forms = {f"{link.sender}->{link.receiver}"} if one_way else {link.name}
        if not one_way:
            forms.add(f"{link.receiver}-{link.sender}")
        if name in forms:
            found.add(link.name)
    if found:
        return found
    if name.endswith("-"):
        raise BadQuestion(
            f"there is no link {name!r}: to the shell a `>` is something else, so put one way of a "
            f"link in quotes: '{name}>SITE'"
        )
    if one_way:
        known = [f"{link.sender}->{link.receiver}" for link in mesh.links]
    else:
        known = list(dict.fromkeys([*(link.name for link in mesh.links), *mesh.sites]))
    meant = nearest(name, known)
    hint = f"did you mean {meant!r}?" if meant else f"the mesh has {', '.join(known[:12])}"
    raise BadQuestion(f"there is no site or link {name!r}: {hint}")


def parse_load(texts: Sequence[str], mesh: Mesh) -> PublishRates:
    """Read rates as `isthmus plan` does, but also without a unit (messages a second), and
    `SITE=RATE` for every exchange that leaves the site. Raises BadQuestion.
    """
    try:
        return parse_rates([one for text in texts for one in _as_plan_reads_it(text, mesh)], mesh)
    except BadLoad as error:
        raise BadQuestion(f"--rate: {error}") from None


def _as_plan_reads_it(text: str, mesh: Mesh) -> list[str]:
    of_what, is_special, rate = text.rpartition("=")
    rate = rate.strip()
    if _BARE.fullmatch(rate):
        rate += "/s"
    if not is_special:
        return [rate]
    if of_what not in mesh.sites:
        return [f"{of_what}={rate}"]
    if of_what in mesh.exchanges:
        raise BadQuestion(
            f"--rate {text}: {of_what!r} is a site and an exchange: write EXCHANGE@SITE=RATE"
        )
    leaving = [one.name for one in mesh.exchanges.values() if one.leaves(of_what)]
    if not leaving:
        raise BadQuestion(f"--rate {text}: no exchange leaves {of_what}: see their `from`")
    return [f"{exchange}@{of_what}={rate}" for exchange in leaving]


def parse_lines(texts: Sequence[str], mesh: Mesh) -> Lines:
    """Read `10MB/s` for every line, `paris-tokyo=1MB/s` for one. Raises BadQuestion."""
    everywhere, links = LINE_BYTES_PER_S, dict[str, float]()
    for text in texts:
        name, is_special, rate = text.rpartition("=")
        try:
            bytes_per_s = parse_rate(rate)
        except BadSize as error:
            raise BadQuestion(f"--line-rate {text}: {error}; 100 Mbit/s are 12.5MB/s") from None
        if not bytes_per_s:
            raise BadQuestion(f"--line-rate {text}: a line that carries nothing: say --fail")
        if is_special:
            links |= dict.fromkeys(links_named(name, mesh), float(bytes_per_s))
        else:
            everywhere = float(bytes_per_s)
    return Lines(everywhere, links)
