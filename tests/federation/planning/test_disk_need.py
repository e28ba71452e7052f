"""Which sites log what, and what that takes of their disks."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from dataclasses import replace

import pytest

from federation.brokers.provision import LOG_SEGMENT_BYTES
from federation.mesh import Exchange, ForwardingRule, Link, LogLimit, Mesh, Site
from federation.planning.disk_need import (
    BATCH_BYTES,
    IDENTITY_BYTES,
    MESSAGE_BYTES,
    DiskNeed,
    PublishRates,
    disk_need,
)
from federation.planning.log_spread import LogSpread, shares
from federation.planning.routes import routes_of
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Series
from relay.batches.format import seal
from relay.links.forwarding import ForwardingDecision, forwarding_for

SEGMENTS = 2 * LOG_SEGMENT_BYTES
ORDERS = Exchange("orders")


def mesh(
    *lines: str,
    exchange: Exchange = ORDERS,
    rule: ForwardingRule = ForwardingRule.RING,
    window_s: float = 86_400.0,
    **sites: Site,
) -> Mesh:
    """Lines `a-b` go both ways, `a>b` one way."""
    links: list[Link] = []
    for one in lines:
        sender, receiver = one.replace(">", "-").split("-")
        links.append(Link(sender, receiver, receiver))
        if ">" not in one:
            links.append(Link(receiver, sender, sender))
    names = dict.fromkeys(site for link in links for site in (link.sender, link.receiver))
    all_sites = {name: Site(name, name) for name in names} | sites
    return Mesh("m", "", window_s, rule, all_sites, {exchange.name: exchange}, tuple(links))


def flooded(mesh: Mesh, origin: str, destinations: tuple[str, ...]) -> set[str]:
    """The sites that log a batch, by asking the links of the relay itself."""
    series = Series(origin, bytes(8), "orders", 0, destinations)
    header = BatchHeader(
        BatchKind.MESSAGES, BatchName(series, 0), 0, (), "", 1, 1, 1, 1, 0, 0, (origin,)
    )
    paths = {origin: header.path}
    waiting = [origin]
    while waiting:
        site = waiting.pop(0)
        for link in mesh.links_from(site):
            verdict = forwarding_for(mesh, link).decide(replace(header, path=paths[site]))
            if verdict is ForwardingDecision.SEND and link.receiver not in paths:
                paths[link.receiver] = (*paths[site], link.receiver)
                waiting.append(link.receiver)
    return set(paths)


def logging(mesh: Mesh, origin: str) -> set[str]:
    exchange = mesh.exchanges["orders"]
    found = LogSpread(routes_of(mesh)).logged(origin, shares(mesh, exchange))
    return {site for site, mask in found.items() if mask}


@pytest.mark.parametrize("seed", range(40))
def test_who_logs_is_who_the_links_send_to(seed: int) -> None:
    drawing = random.Random(seed)
    names = "abcdefg"
    tree = [f"{drawing.choice(names[:n])}-{names[n]}" for n in range(1, len(names))]
    to = tuple(sorted(drawing.sample(names[1:], drawing.randint(1, 3))))
    there = mesh(*tree, exchange=Exchange("orders", destinations=to))
    assert logging(there, "a") == flooded(there, "a", to)
    more = [f"{a}>{b}" for a, b in (drawing.sample(names, 2) for _ in range(4))]
    tangled = mesh(*dict.fromkeys(tree + more), exchange=Exchange("orders", destinations=to))
    # Which way came first is not foreseen: never less than what happens.
    assert logging(tangled, "a") >= flooded(tangled, "a", to)


def test_in_a_complete_graph_only_those_that_it_is_for_log_it() -> None:
    to_b = Exchange("orders", destinations=("b",))
    there = mesh("a-b", "b-c", "c-a", exchange=to_b, rule=ForwardingRule.COMPLETE)
    assert logging(there, "a") == {"a", "b"} == flooded(there, "a", ("b",))


def test_what_wants_narrow_is_spread_over_those_that_narrow_it() -> None:
    branches = {name: Site(name, name, wants={"orders": (f"{name}.#",)}) for name in "abcd"}
    hub = mesh(*(f"head-{name}" for name in "abcd"), exchange=ORDERS, **branches)
    groups = shares(hub, ORDERS)
    assert groups == [frozenset(("head", name)) for name in "abcd"]
    spread = LogSpread(routes_of(hub))
    from_head = spread.logged("head", groups)
    assert {site: mask.bit_count() for site, mask in from_head.items()} == {
        "head": 4,
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 1,
    }
    from_a = spread.logged("a", groups)
    assert (from_a["a"].bit_count(), from_a["head"].bit_count(), from_a["b"].bit_count()) == (
        4,
        4,
        1,
    )
    need = disk_need(hub, PublishRates(8.0), 1000)
    # Its own 8, and of each of the four others' 8 a quarter.
    assert need["a"].messages_per_s == pytest.approx(8 + 4 * 2)
    assert need["head"].messages_per_s == pytest.approx(5 * 8)


def test_the_need_is_what_is_logged_in_the_retention_and_two_segments() -> None:
    ring = mesh("a-b", "b-c", "c-a", window_s=72 * 3600)
    need = disk_need(ring, PublishRates(100.0), 2048)["a"]
    each = 2048 + MESSAGE_BYTES + BATCH_BYTES
    kept = 72 * 3600 * 1.1
    assert need.messages_per_s == 300
    assert need.bytes_per_s == pytest.approx(300 * each)
    assert need.log_bytes == pytest.approx(300 * each * kept + SEGMENTS)
    assert need.state_bytes == pytest.approx(2 * 300 * kept * IDENTITY_BYTES)


def test_a_rate_can_be_that_of_an_exchange_or_of_one_flow() -> None:
    rates = PublishRates(1.0, {"orders": 2.0}, {("orders", "b"): 5.0})
    assert [rates.of("orders", "a"), rates.of("orders", "b"), rates.of("news", "b")] == [2, 5, 1]
    pair = mesh("a-b")
    assert disk_need(pair, rates, 10)["a"].messages_per_s == 7


def test_a_site_where_nothing_passes_needs_no_log() -> None:
    away = mesh("a>b", "c>a", exchange=Exchange("orders", origins=("a",), destinations=("b",)))
    need = disk_need(away, PublishRates(10.0), 10)
    assert need["c"].log_bytes == 0
    assert need["b"].messages_per_s == 10


def test_a_limit_below_the_need_is_short_and_says_how_long_it_lasts() -> None:
    limit = LogLimit(max_bytes=SEGMENTS + 1_000_000)
    need = DiskNeed(1, 1000.0, SEGMENTS + 2_000_000, 0, limit)
    assert need.is_short
    assert need.lasts_s == 1000
    assert not dataclasses.replace(need, limit=LogLimit()).is_short
    assert dataclasses.replace(need, limit=LogLimit()).lasts_s is None


@pytest.mark.parametrize("count", [1, 20])
def test_a_real_batch_is_no_bigger_than_what_is_reckoned(count: int) -> None:
    body = json.dumps({"order": 1}).encode() + os.urandom(1000)
    # Content type, delivery mode, message ID and timestamp, as an ordinary client sends them.
    properties = bytes(2) + b"\x10application/json" + b"\x02" + b"\x24" + bytes(36) + bytes(8)
    entry = Entry(os.urandom(16), b"order.new.europe", properties, body, 1_700_000_000_000)
    path = tuple(f"branch-{n:03}" for n in range(6))
    series = Series(path[0], os.urandom(8), "orders", 0, ())
    header = BatchHeader(
        BatchKind.MESSAGES, BatchName(series, 7), 7, (), "0123456789ab", 0, 0, 0, 0, 0, 0, path
    )
    _, data = seal(
        header,
        [entry] * count
        if count == 1
        else [entry._replace(body=os.urandom(1010)) for _ in range(count)],
    )
    chunk_and_wrapping = 48 + 12
    assert len(data) + chunk_and_wrapping <= count * (len(body) + MESSAGE_BYTES) + BATCH_BYTES
