"""Request for a measurement, out of command-line options and the mesh file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federation.destinations import DestinationIndex, addressing_of
from federation.mesh import Exchange, Mesh
from federation.mesh_file.quantities import BadDuration, BadSize, parse_duration, parse_size
from federation.wording import nearest
from isthmus.bench.options import BenchOptions
from isthmus.bench.queues import QueueType
from isthmus.departures import why_it_stays
from isthmus.load.messages import HEAD_BYTES
from isthmus.plan.expected_load import BadLoad, parse_rate

MOST_PAIRS = 1000
"""Limit of pairs, all handled by one process."""
WORD = "bench"
"""Word in place of a pattern's wildcards."""


class BadBench(ValueError):
    """Invalid request for a measurement; the text names the remedy."""


def key_of(mesh: Mesh, exchange: Exchange) -> str:
    """Return the routing key under which a message reaches the most sites; of equals the first in
    the order of the file.
    """
    patterns = [*exchange.keys]
    for site in mesh.sites.values():
        patterns += site.wants.get(exchange.name, ())
    keys = list(dict.fromkeys(_made(pattern, exchange) for pattern in patterns)) or [WORD]
    origins = [site for site in mesh.sites if exchange.leaves(site)]
    return max(
        keys, key=lambda key: sum(len(takers(mesh, exchange, site, key)) for site in origins)
    )


def _made(pattern: str, exchange: Exchange) -> str:
    if exchange.type != "topic":
        return pattern
    return ".".join(WORD if word in ("*", "#") else word for word in pattern.split("."))


def takers(mesh: Mesh, exchange: Exchange, origin: str, key: str) -> list[str]:
    """Return the sites that the mesh delivers to when `origin` publishes under the key."""
    if why_it_stays(mesh, origin, exchange.name, key):
        return []
    addressing = addressing_of(mesh, exchange, origin)
    wanted = DestinationIndex(addressing).of(key.encode()) if addressing is not None else ()
    return [
        site.name
        for site in mesh.sites.values()
        if site.name != origin
        and exchange.reaches(site.name)
        and (not wanted or site.cluster_id in wanted)
    ]


def pairs_of(
    mesh: Mesh,
    exchange: Exchange,
    key: str,
    origins: Sequence[str] = (),
    destinations: Sequence[str] = (),
) -> dict[str, tuple[str, ...]]:
    """Return destinations by origin: the named sites, or by default all of the mesh file. Raises
    BadBench if nothing would be measured.
    """
    found = {
        origin: tuple(
            site
            for site in takers(mesh, exchange, origin, key)
            if not destinations or site in destinations
        )
        for origin in origins or mesh.sites
    }
    for origin in origins:
        if not found[origin]:
            raise BadBench(
                why_it_stays(mesh, origin, exchange.name, key)
                or f"nothing of {exchange.name} goes from {origin} to "
                f"{', '.join(destinations) or 'any other site'} under {key!r}: see `to`, `wants` "
                "and `never_via` in the file, or give another --key"
            )
    heard = {site for sites in found.values() for site in sites}
    for site in destinations:
        if site not in heard:
            raise BadBench(
                f"nothing of {exchange.name} comes to {site} under {key!r} from the sites that are "
                "published at: see `to`, `wants` and `never_via` in the file, or give another --key"
            )
    found = {origin: sites for origin, sites in found.items() if sites}
    if not found:
        raise BadBench(
            f"nothing of {exchange.name} goes from any site to another under {key!r}: see `from`, "
            "`to` and `wants` in the file, or give another --key"
        )
    count = sum(map(len, found.values()))
    if count > MOST_PAIRS:
        raise BadBench(
            f"{count:,} pairs of sites are too many to measure at a time: choose with --from and "
            f"--to, up to {MOST_PAIRS:,}"
        )
    return found


MOST_BYTES = 15 * 2**20
"""Limit (bytes) of a body: RabbitMQ 4 takes 16 MiB."""

MOST_AHEAD, LEAST_AHEAD = 10_000, 16
AHEAD_BYTES = 64 * 2**20
"""Default limits of messages under way to a site: a second of traffic or more in most meshes."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """Validated measurement. `size` in bytes of a body; `wait_s` without any arrival ends the
    measurement.
    """

    exchange: Exchange
    key: str
    pairs: Mapping[str, tuple[str, ...]]
    """Destinations by origin."""
    per_second: float | None
    """Messages a second at each origin, or None to publish as fast as brokers confirm."""
    size: int
    duration_s: float
    wait_s: float
    ahead: int
    """Limit of messages under way from an origin to a site while `per_second` is None; more would
    only fill queues and logs.
    """
    queue_type: QueueType = QueueType.QUORUM

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(self.pairs)

    @property
    def destinations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site for sites in self.pairs.values() for site in sites))


def request_of(mesh: Mesh, options: BenchOptions) -> BenchRequest:
    """Validate the options. Raises BadBench."""
    exchange = _exchange(mesh, options.exchange)
    origins, destinations = _names(options.origins), _names(options.destinations)
    for option, names in (("--from", origins), ("--to", destinations)):
        for name in names:
            if name not in mesh.sites:
                raise BadBench(f"{option}: {_unknown('site', name, list(mesh.sites))}")
    key = key_of(mesh, exchange) if options.key is None else options.key
    wildcards = {"*", "#"}.intersection(key.split("."))
    if exchange.type == "topic" and wildcards:
        raise BadBench(
            f"--key {key!r} is a pattern: give a key that messages are published under, such as "
            f"{key_of(mesh, exchange)!r}"
        )
    size = _size(options.size)
    duration_s = _seconds("--duration", options.duration)
    if not duration_s:
        raise BadBench("--duration 0s measures nothing: say such as 30s")
    return BenchRequest(
        exchange,
        key,
        pairs_of(mesh, exchange, key, origins, destinations),
        None if options.rate is None else _rate(options.rate),
        size,
        duration_s,
        _seconds("--wait", options.wait),
        options.ahead or max(LEAST_AHEAD, min(MOST_AHEAD, AHEAD_BYTES // size)),
        options.queue_type,
    )


def _names(texts: list[str] | None) -> list[str]:
    names = [name.strip() for text in texts or () for name in text.split(",")]
    return list(dict.fromkeys(filter(None, names)))


def _exchange(mesh: Mesh, name: str | None) -> Exchange:
    if name is None:
        if len(mesh.exchanges) != 1:
            known = ", ".join(mesh.exchanges) or "none"
            raise BadBench(f"say which exchange with --exchange: the mesh has {known}")
        return next(iter(mesh.exchanges.values()))
    if name not in mesh.exchanges:
        raise BadBench(f"--exchange: {_unknown('exchange', name, list(mesh.exchanges))}")
    return mesh.exchanges[name]


def _rate(text: str) -> float:
    try:
        rate = parse_rate(text if "/" in text else f"{text.strip()}/s")
    except BadLoad as error:
        raise BadBench(f"--rate: {error}") from None
    if not rate:
        raise BadBench("--rate 0 publishes nothing; without --rate it is as fast as it goes")
    return rate


def _size(text: str) -> int:
    try:
        size = parse_size(text)
    except BadSize as error:
        raise BadBench(f"--size: {error}") from None
    if not HEAD_BYTES <= size <= MOST_BYTES:
        raise BadBench(
            f"--size {text}: between {HEAD_BYTES}B, which say which message it is, and 15MiB"
        )
    return size


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except BadDuration as error:
        raise BadBench(f"{option}: {error}") from None


def _unknown(kind: str, name: str, known: list[str]) -> str:
    meant = nearest(name, known)
    hint = f"did you mean {meant!r}?" if meant else f"the mesh has {', '.join(known[:12])}"
    return f"there is no {kind} {name!r}: {hint}"
