"""What an operator expects to be published: `200/s`, `orders=200/s`, `orders@paris=1000/m`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from federation.mesh import Mesh
from federation.mesh_file.nearest import nearest
from federation.planning.disk_need import PublishRates

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kM]?)/(s|m|min|h|d)")
_FACTORS = {"": 1, "k": 1000, "M": 1_000_000}


class BadLoad(ValueError):
    """Not an expected load; the text says what to write."""


def parse_rates(texts: Sequence[str], mesh: Mesh) -> PublishRates:
    """Each text: a rate for every exchange at each site that publishes to it, or
    `EXCHANGE=RATE`, or `EXCHANGE@SITE=RATE`. Raises BadLoad.
    """
    everywhere, exchanges, flows = 0.0, dict[str, float](), dict[tuple[str, str], float]()
    for text in texts:
        flow, is_special, rate = text.rpartition("=")
        if not is_special:
            everywhere = parse_rate(text)
            continue
        exchange, is_of_site, site = flow.partition("@")
        if exchange not in mesh.exchanges:
            raise BadLoad(_unknown("exchange", exchange, list(mesh.exchanges)))
        if not is_of_site:
            exchanges[exchange] = parse_rate(rate)
            continue
        if site not in mesh.sites:
            raise BadLoad(_unknown("site", site, list(mesh.sites)))
        if not mesh.exchanges[exchange].leaves(site):
            raise BadLoad(f"nothing leaves {site} by {exchange}: see its `from`")
        flows[exchange, site] = parse_rate(rate)
    return PublishRates(everywhere, exchanges, flows)


def parse_rate(text: str) -> float:
    """Messages a second. Raises BadLoad."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise BadLoad(f"{text!r} is no rate: write messages and a unit of time, such as 200/s")
    return float(match[1]) * _FACTORS[match[2]] / _UNITS_S[match[3]]


def _unknown(kind: str, name: str, known: list[str]) -> str:
    meant = nearest(name, known)
    return f"there is no {kind} {name!r}" + (f": did you mean {meant!r}?" if meant else "")
