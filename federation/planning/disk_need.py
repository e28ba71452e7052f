"""Disk that the outage window needs at each site, at an expected rate. Pure.

A site's log keeps every batch that enters it, whether of its own, for itself or passed on, for
`retention_s`, the outage window and its margin::

    log    = retention_s x sum over flows (messages/s logged here x bytes a message)
             + 2 segments of 64 MiB: the segment being written, and one only partly old enough
    bytes  = (size + MESSAGE_BYTES) / compression + batch / messages in a batch
    batch  = BATCH_BYTES + the names of its destinations, where they are not every site

A batch has as many messages as come in while it lingers: at a few hundred a second, a single
message. Each broker node with a replica of the log holds these bytes once. Besides, the node's
state folder remembers every identity delivered or published here, for one to two windows::

    state  = 2 x retention_s x (messages/s delivered + published here) x IDENTITY_BYTES
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from federation.brokers.provision import LOG_SEGMENT_BYTES
from federation.mesh import Exchange, LogLimit, Mesh
from federation.planning.log_spread import ALL_KEYS, LogSpread, shares
from federation.planning.routes import by_routes, routes_of
from federation.planning.site_classes import class_of, twin_classes

MESSAGE_BYTES = 160
"""Bytes beside the body: identity, times and lengths (41), key and properties of an ordinary
client.
"""
BATCH_BYTES = 400
"""Bytes of header, path, and the stream's framing."""
IDENTITY_BYTES = 64
"""Bytes of an identity: a key of 16, its value of 18, and RocksDB's own."""
LINGER_S = 0.003
MOST_IN_A_BATCH = 256
BATCH_FILLS_AT = 256 * 1024
"""The packer's defaults: linger time, and messages and bytes of a full batch."""


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages a second that are published to each exchange at each of its origins."""

    everywhere: float = 0.0
    exchanges: Mapping[str, float] = field(default_factory=dict)
    flows: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Rates by exchange and site."""

    def of(self, exchange: str, site: str) -> float:
        """Return the rate of one flow: the most specific given."""
        of_all = self.exchanges.get(exchange, self.everywhere)
        return self.flows.get((exchange, site), of_all)


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Disk need of one site. Rates a second; bytes for the whole retention."""

    messages_per_s: float
    """Messages that enter its log."""
    bytes_per_s: float
    log_bytes: float
    state_bytes: float
    limit: LogLimit

    @property
    def is_short(self) -> bool:
        """True if its log may not hold what the window needs."""
        return self.limit.max_bytes is not None and self.log_bytes > self.limit.max_bytes

    @property
    def lasts_s(self) -> float | None:
        """Longest outage (s) that its limited log covers, or None without a limit."""
        if self.limit.max_bytes is None or not self.bytes_per_s:
            return None
        return max(0.0, self.limit.max_bytes - 2 * LOG_SEGMENT_BYTES) / self.bytes_per_s


@dataclass(slots=True)
class _Sum:
    messages: float = 0.0
    bytes: float = 0.0
    identities: float = 0.0


def disk_need(
    mesh: Mesh, rates: PublishRates, size: float, compression: float = 1.0
) -> dict[str, DiskNeed]:
    """Return the need by site. `size`: bytes of a body; `compression`: factor by which batches
    shrink.
    """
    sums = {site: _Sum() for site in mesh.sites}
    for kept_from, exchanges in by_routes(mesh).items():
        routes = routes_of(mesh, kept_from)
        spread = LogSpread(routes)
        for exchange in exchanges:
            groups = shares(mesh, exchange)
            colour = _Colour(mesh, exchange, rates)
            classes = twin_classes(routes, colour, lambda _: None)
            _add(sums, mesh, exchange, spread, groups, classes, rates, (size, compression))
    return {site: _need(total, mesh, site) for site, total in sums.items()}


class _Colour:
    """Properties that distinguish sites for one exchange. Patterns of a single site do not
    distinguish it from another site with patterns of its own.
    """

    def __init__(self, mesh: Mesh, exchange: Exchange, rates: PublishRates) -> None:
        self._mesh, self._exchange, self._rates = mesh, exchange, rates
        self._times: dict[frozenset[str], int] = {}
        for site in mesh.sites.values():
            wants = frozenset(site.wants.get(exchange.name, ()))
            self._times[wants] = self._times.get(wants, 0) + 1

    def __call__(self, site: str) -> Hashable:
        patterns = self._mesh.sites[site].wants.get(self._exchange.name)
        wants: Hashable = None
        if patterns is not None:
            alone = self._times[frozenset(patterns)] == 1 and ALL_KEYS not in patterns
            wants = "its own" if alone else frozenset(patterns)
        leaves, reaches = self._exchange.leaves(site), self._exchange.reaches(site)
        return leaves, reaches, wants, self._rates.of(self._exchange.name, site)


def _add(
    sums: Mapping[str, _Sum],
    mesh: Mesh,
    exchange: Exchange,
    spread: LogSpread,
    groups: Sequence[frozenset[str]],
    classes: Sequence[tuple[str, ...]],
    rates: PublishRates,
    sizes: tuple[float, float],
) -> None:
    """Add the need of one exchange, computed once for each class of origins."""
    numbers = class_of(classes)
    taken = {site: sum(site in group for group in groups) / len(groups) for site in numbers}
    for origins in classes:
        origin = origins[0]
        rate = rates.of(exchange.name, origin)
        if not exchange.leaves(origin) or not rate:
            continue
        logged = spread.logged(origin, groups)
        each = bytes_each(mesh, exchange, groups, rate, *sizes)
        for others in classes:
            same = others is origins
            # In the origin's own class, another member represents what a twin gets.
            like = others[-1]
            count = len(origins) - same
            part = logged.get(like, 0).bit_count() / len(groups) if count else 0.0
            own = logged[origin].bit_count() / len(groups) if same else 0.0
            messages = rate * (count * part + own)
            for site in others:
                total = sums[site]
                total.messages += messages
                total.bytes += messages * each
                total.identities += rate * (count * taken[site] + own)


def bytes_each(
    mesh: Mesh,
    exchange: Exchange,
    groups: Sequence[frozenset[str]],
    rate: float,
    size: float,
    compression: float,
) -> float:
    """Return the log's bytes for each message of a flow of rate `rate`."""
    named = exchange.destinations is not None or len(groups) > 1
    names = [sum(len(mesh.sites[site].cluster_id) + 1 for site in group) for group in groups]
    batch = BATCH_BYTES + (sum(names) / len(names) if named else 0)
    together = min(MOST_IN_A_BATCH, BATCH_FILLS_AT / max(size, 1), rate * LINGER_S)
    return (size + MESSAGE_BYTES) / compression + batch / max(1.0, together)


def _need(total: _Sum, mesh: Mesh, site: str) -> DiskNeed:
    kept = mesh.retention_s
    log = total.bytes * kept + 2 * LOG_SEGMENT_BYTES if total.bytes else 0.0
    state = 2 * kept * total.identities * IDENTITY_BYTES
    return DiskNeed(total.messages, total.bytes, log, state, mesh.sites[site].log)
