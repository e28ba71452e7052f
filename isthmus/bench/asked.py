"""What an operator asks to be measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federation.mesh import Exchange, Mesh
from federation.mesh_file.nearest import nearest
from federation.mesh_file.quantities import BadDuration, BadSize, parse_duration, parse_size
from isthmus.bench.pairs import BadBench, key_of, pairs_of
from isthmus.bench.queues import QueueType
from isthmus.load import HEAD_BYTES
from isthmus.plan.load_options import BadLoad, parse_rate

MOST_BYTES = 15 * 2**20
"""Of a message: RabbitMQ 4 takes 16 MiB."""

MOST_AHEAD, LEAST_AHEAD = 10_000, 16
AHEAD_BYTES = 64 * 2**20
"""What is under way to a site where nobody says how much: a second's worth, or more, of most."""


@dataclass(frozen=True, slots=True)
class Said:
    """The options, as they were given."""

    exchange: str | None = None
    key: str | None = None
    origins: Sequence[str] = ()
    destinations: Sequence[str] = ()
    rate: str | None = None
    size: str = "1KiB"
    duration: str = "30s"
    wait: str = "60s"
    ahead: int | None = None
    queue_type: QueueType = QueueType.QUORUM


@dataclass(frozen=True, slots=True)
class Asked:
    """A measurement. `size` in bytes of a body, `wait_s` without any arrival before it gives up."""

    exchange: Exchange
    key: str
    pairs: Mapping[str, tuple[str, ...]]
    """Sites that are listened at, by the site that is published at."""
    per_second: float | None
    """Messages at each of these; None: as fast as it goes."""
    size: int
    duration_s: float
    wait_s: float
    ahead: int
    """Most messages of an origin that are under way to a site, without `per_second`: more would
    fill queues and logs, and show nothing.
    """
    queue_type: QueueType = QueueType.QUORUM

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(self.pairs)

    @property
    def destinations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site for sites in self.pairs.values() for site in sites))


def asked_of(mesh: Mesh, said: Said) -> Asked:
    """What the options come to. Raises BadBench."""
    exchange = _exchange(mesh, said.exchange)
    for option, names in (("--from", said.origins), ("--to", said.destinations)):
        for name in names:
            if name not in mesh.sites:
                raise BadBench(f"{option}: {_unknown('site', name, list(mesh.sites))}")
    key = key_of(mesh, exchange) if said.key is None else said.key
    wildcards = {"*", "#"}.intersection(key.split("."))
    if exchange.type == "topic" and wildcards:
        raise BadBench(
            f"--key {key!r} is a pattern: give a key that messages are published under, such as "
            f"{key_of(mesh, exchange)!r}"
        )
    size = _size(said.size)
    duration_s = _seconds("--duration", said.duration)
    if not duration_s:
        raise BadBench("--duration 0s measures nothing: say such as 30s")
    return Asked(
        exchange,
        key,
        pairs_of(mesh, exchange, key, said.origins, said.destinations),
        None if said.rate is None else _rate(said.rate),
        size,
        duration_s,
        _seconds("--wait", said.wait),
        said.ahead or max(LEAST_AHEAD, min(MOST_AHEAD, AHEAD_BYTES // size)),
        said.queue_type,
    )


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
