"""Expected load: options such as `200/s`, `orders=200/s`, `orders@paris=1000/m`, and their
report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from federation.mesh import Mesh
from federation.planning.disk_need import PublishRates
from federation.wording import nearest

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kM]?)/(s|m|min|h|d)")
_FACTORS = {"": 1, "k": 1000, "M": 1_000_000}


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """Expected publishing: rates, bytes of a body, compression factor of batches."""

    rates: PublishRates
    size: int
    compression: float = 1.0


class BadLoad(ValueError):
    """Invalid expected load; the text names the remedy."""


def parse_rates(texts: Sequence[str], mesh: Mesh) -> PublishRates:
    """Read rates: `RATE` for every exchange at each site that publishes there, `EXCHANGE=RATE`, or
    `EXCHANGE@SITE=RATE`. Raises BadLoad.
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
    """Read messages a second. Raises BadLoad."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise BadLoad(f"{text!r} is no rate: write messages and a unit of time, such as 200/s")
    return float(match[1]) * _FACTORS[match[2]] / _UNITS_S[match[3]]


def _unknown(kind: str, name: str, known: list[str]) -> str:
    meant = nearest(name, known)
    return f"there is no {kind} {name!r}" + (f": did you mean {meant!r}?" if meant else "")


def assumed_of(rates: PublishRates, size: float, compression: float) -> dict[str, Any]:
    """Return the load as a JSON object: messages a second in general and by exception, bytes of a
    body, compression factor.
    """
    return {
        "rate_per_s": rates.everywhere,
        "exchange_rates_per_s": dict(rates.exchanges),
        "flow_rates_per_s": [
            {"exchange": exchange, "site": site, "rate_per_s": rate}
            for (exchange, site), rate in rates.flows.items()
        ],
        "size_bytes": size,
        "compression": compression,
    }


def rates_text(assumed: dict[str, Any]) -> str:
    parts = []
    if assumed["rate_per_s"]:
        parts.append(f"{assumed['rate_per_s']:g}/s to each exchange at each site that publishes")
    parts += [f"{rate:g}/s to {name}" for name, rate in assumed["exchange_rates_per_s"].items()]
    parts += [
        f"{one['rate_per_s']:g}/s to {one['exchange']} at {one['site']}"
        for one in assumed["flow_rates_per_s"]
    ]
    return ", ".join(parts)
