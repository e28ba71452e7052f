"""Where batches go: over random graphs, and when the mesh changes what a link carries."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.mesh import AckRule, Begins, Exchange, ForwardingRule, Link, Mesh, Site
from federation.slots import SlotMap
from relay.batches.batch import EVERY_SITE, BatchHeader, BatchKind, BatchName, Place, Series
from relay.ledger.members import Absent
from relay.links.forwarding import Forwarding, ForwardingDecision, forwarding_for, seen_with
from relay.links.position import LinkPosition, Sample

NAMES = "abcdefg"


def header(
    origin: str,
    to: tuple[str, ...] = EVERY_SITE,
    *,
    path: str = "",
    exchange: str = "secret",
    kind: BatchKind = BatchKind.MESSAGES,
) -> BatchHeader:
    name = BatchName(Series(origin, bytes(8), exchange, 0, to), 0)
    return BatchHeader(kind, name, 0, (), "r1", 1, 1, 1, 1, 0, 0, tuple(path or origin))


def mesh_of(
    links: set[tuple[str, str]],
    never_via: tuple[str, ...] = (),
    rule: ForwardingRule = ForwardingRule.RING,
    sites: str = NAMES,
) -> Mesh:
    return Mesh(
        "acme",
        "r1",
        3600.0,
        rule,
        {name: Site(name, name) for name in sites},
        {"secret": Exchange("secret", never_via=never_via), "open": Exchange("open")},
        tuple(Link(sender, receiver, receiver) for sender, receiver in sorted(links)),
    )


@dataclass
class Spread:
    """One batch's way through a mesh, every link at its own pace."""

    mesh: Mesh
    chance: random.Random
    paths: dict[str, str] = field(default_factory=dict)
    """Who has it logged, and by which path."""
    carried: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self, first: BatchHeader, absent: Absent | None = None) -> Spread:
        links = {
            (link.sender, link.receiver): forwarding_for(self.mesh, link, absent)
            for link in self.mesh.links
        }
        origin = first.name.series.origin
        self.paths = {origin: origin}
        waiting = deque(link for link in links if link[0] == origin)
        while waiting:
            waiting.rotate(self.chance.randrange(len(waiting)))
            sender, receiver = link = waiting.popleft()
            batch = replace(first, path=tuple(self.paths[sender]))
            if links[link].decide(batch) is not ForwardingDecision.SEND:
                continue
            self.carried[link] += 1
            if receiver not in self.paths:
                self.paths[receiver] = self.paths[sender] + receiver
                waiting += [onward for onward in links if onward[0] == receiver]
        return self


def within_reach(mesh: Mesh, origin: str) -> set[str]:
    """Sites to which there is a way without the banned ones."""
    banned = mesh.exchanges["secret"].never_via
    found, waiting = {origin}, [origin]
    while waiting:
        site = waiting.pop()
        if mesh.rule is ForwardingRule.COMPLETE and site != origin:
            continue
        onward = {k.receiver for k in mesh.links_from(site)} - found - set(banned)
        found |= onward
        waiting += onward
    return found


GRAPHS = st.sets(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda k: k[0] != k[1]),
    max_size=25,
)


@given(
    links=GRAPHS,
    banned=st.sets(st.sampled_from(NAMES[1:]), max_size=3),
    to=st.one_of(st.none(), st.sets(st.sampled_from(NAMES), min_size=1)),
    rule=st.sampled_from(ForwardingRule),
    seed=st.integers(0, 2**32),
)
def test_every_destination_within_reach_gets_it_and_no_banned_site_ever_holds_it(
    links: set[tuple[str, str]],
    banned: set[str],
    to: set[str] | None,
    rule: ForwardingRule,
    seed: int,
) -> None:
    mesh = mesh_of(links, tuple(sorted(banned)), rule)
    first = header("a", EVERY_SITE if to is None else tuple(sorted(to)))
    spread = Spread(mesh, random.Random(seed)).run(first)
    destinations = set(NAMES) if to is None else to
    assert destinations & within_reach(mesh, "a") <= set(spread.paths) | {"a"}
    assert not banned & set(spread.paths)
    assert set(spread.carried.values()) <= {1}
    assert all(
        spread.carried[sender, receiver] == 0 for sender, receiver in links if receiver == "a"
    )


def test_the_broker_of_a_banned_site_is_no_meeting_point_either() -> None:
    links = (Link("a", "b", meeting="c"), Link("a", "d", "d"), Link("d", "b", meeting="c"))
    mesh = replace(mesh_of({("b", "c")}, never_via=("c",), sites="abcd"), links=links)
    to_b = header("a", ("b",))
    assert [forwarding_for(mesh, link).decide(to_b) for link in links[:2]] == [
        ForwardingDecision.KEPT_OFF,
        ForwardingDecision.NOT_WANTED,
    ]
    open_to_all = header("a", ("b",), exchange="open")
    assert forwarding_for(mesh, links[0]).decide(open_to_all) is ForwardingDecision.SEND
    assert forwarding_for(mesh, links[1]).decide(open_to_all) is ForwardingDecision.SEND


@given(links=GRAPHS, banned=st.sets(st.sampled_from(NAMES[1:])), seed=st.integers(0, 2**32))
def test_marks_and_other_exchanges_cross_the_banned_sites(
    links: set[tuple[str, str]], banned: set[str], seed: int
) -> None:
    mesh = mesh_of(links, tuple(sorted(banned)))
    reach = within_reach(mesh_of(links), "a")
    for first in (header("a", exchange="open"), header("a", exchange="", kind=BatchKind.MARK)):
        assert set(Spread(mesh, random.Random(seed)).run(first).paths) == reach


SETS = st.one_of(
    st.just(EVERY_SITE),
    st.sets(st.sampled_from(NAMES[1:]), min_size=1, max_size=3).map(lambda to: tuple(sorted(to))),
)


@given(
    links=GRAPHS,
    banned=st.sets(st.sampled_from(NAMES[1:]), max_size=2),
    sets=st.lists(SETS, min_size=2, max_size=12),
    rule=st.sampled_from(ForwardingRule),
    seed=st.integers(0, 2**32),
)
def test_a_flow_s_order_holds_at_every_destination_whatever_sets_its_batches_have(
    links: set[tuple[str, str]],
    banned: set[str],
    sets: list[tuple[str, ...]],
    rule: ForwardingRule,
    seed: int,
) -> None:
    mesh = mesh_of(links, tuple(sorted(banned)), rule)
    chance = random.Random(seed)
    filters = {(k.sender, k.receiver): forwarding_for(mesh, k) for k in mesh.links}
    # A log: the batches' numbers and the paths they came by. A link goes through its sender's log
    # in order, and hands its receiver what that has not.
    logs: dict[str, dict[int, str]] = {site: {} for site in NAMES}
    logs["a"] = dict.fromkeys(range(len(sets)), "a")
    read = dict.fromkeys(filters, 0)
    while behind := [link for link in filters if read[link] < len(logs[link[0]])]:
        sender, receiver = link = chance.choice(behind)
        number, path = list(logs[sender].items())[read[link]]
        read[link] += 1
        batch = header("a", sets[number], path=path)
        if filters[link].decide(batch) is ForwardingDecision.SEND and number not in logs[receiver]:
            logs[receiver][number] = path + receiver
    for site in within_reach(mesh, "a") - {"a"}:
        due = [number for number, to in enumerate(sets) if to == EVERY_SITE or site in to]
        assert [number for number in logs[site] if number in due] == due


def test_a_message_for_one_branch_crosses_one_link() -> None:
    hub = {("a", shop) for shop in "bcdefg"} | {(shop, "a") for shop in "bcdefg"}
    spread = Spread(mesh_of(hub), random.Random(1)).run(header("a", ("c",)))
    assert spread.carried == {("a", "c"): 1}
    spread = Spread(mesh_of(hub), random.Random(1)).run(header("d", ("c",)))
    assert spread.carried == {("d", "a"): 1, ("a", "c"): 1}


def test_a_mark_goes_where_its_origins_batches_may_and_no_further() -> None:
    hub = {("a", shop) for shop in "bcdefg"} | {(shop, "a") for shop in "bcdefg"}
    mark = header("d", ("a",), exchange="", kind=BatchKind.MARK)
    assert Spread(mesh_of(hub), random.Random(1)).run(mark).carried == {("d", "a"): 1}
    to_all = header("d", exchange="", kind=BatchKind.MARK)
    assert set(Spread(mesh_of(hub), random.Random(1)).run(to_all).paths) == set(NAMES)


@pytest.mark.parametrize("rule", [ForwardingRule.RING, ForwardingRule.COMPLETE])
def test_a_canary_goes_over_the_links_out_of_its_site_and_no_further(rule: ForwardingRule) -> None:
    both_ways = {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "c"), ("c", "a")}
    mesh = mesh_of(both_ways, rule=rule, sites="abc")
    verdicts = {
        (link.sender, link.receiver): forwarding_for(mesh, link).decide(
            header("a", path=path, exchange="", kind=BatchKind.CANARY)
        )
        for link, path in (
            (one, "a" if one.sender == "a" else "a" + one.sender) for one in mesh.links
        )
    }
    assert verdicts == {
        ("a", "b"): ForwardingDecision.SEND,
        ("a", "c"): ForwardingDecision.SEND,
        ("b", "a"): ForwardingDecision.ON_PATH,
        ("c", "a"): ForwardingDecision.ON_PATH,
        ("b", "c"): ForwardingDecision.ONLY_THE_ORIGIN_SENDS,
        ("c", "b"): ForwardingDecision.ONLY_THE_ORIGIN_SENDS,
    }


def test_what_is_for_its_origin_alone_crosses_no_link() -> None:
    links = {(one, other) for one in NAMES for other in NAMES if one != other}
    assert not Spread(mesh_of(links), random.Random(1)).run(header("a", ("a",))).carried


# When the mesh changes

LINK = Link("a", "b", "b")
ROUND = {("a", "b"), ("b", "c"), ("c", "d"), ("b", "e"), ("e", "d")}


def filter_of(never_via: tuple[str, ...], links: set[tuple[str, str]] = ROUND) -> Forwarding:
    return forwarding_for(mesh_of(links, never_via, sites="abcde"), LINK)


def carried(forwarding: Forwarding) -> set[tuple[str, ...]]:
    """Of a batch for each one site, and for all: which it sends."""
    sets = [EVERY_SITE, *((site,) for site in NAMES)]
    return {to for to in sets if forwarding.decide(header("a", to)) is ForwardingDecision.SEND}


@pytest.mark.parametrize(
    ("before", "now", "stranded"),
    [
        ((), (), False),
        (("c",), ("c",), False),
        ((), ("c",), False),
        (("c",), (), True),
        (("b",), ("c",), True),
        (("c",), ("c", "e"), False),
        (("c", "e"), ("c",), True),
        (("c",), ("e",), True),
    ],
)
def test_a_changed_never_via_strands_batches_exactly_where_it_lets_more_pass(
    before: tuple[str, ...], now: tuple[str, ...], stranded: bool
) -> None:
    old, new = filter_of(before), filter_of(now)
    assert seen_with(old).stranded_by(new) is stranded
    assert stranded is not (carried(new) <= carried(old))


BANS = st.sets(st.sampled_from("bcde"), max_size=3).map(lambda sites: tuple(sorted(sites)))
FIVE = st.sets(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")).filter(lambda k: k[0] != k[1]),
    max_size=12,
)


@given(before=BANS, now=BANS, links=FIVE, more=FIVE)
def test_no_change_strands_a_batch_unnoticed(
    before: tuple[str, ...],
    now: tuple[str, ...],
    links: set[tuple[str, str]],
    more: set[tuple[str, str]],
) -> None:
    old = filter_of(before, links | {("a", "b")})
    new = filter_of(now, links | more | {("a", "b")})
    if not seen_with(old).stranded_by(new):
        assert carried(new) <= carried(old)


def test_a_link_s_position_remembers_what_was_kept_off() -> None:
    for never_via in ((), ("c",)):
        seen = seen_with(filter_of(never_via))
        place = Place(3, header("a").name)
        kept = LinkPosition(b"log", b"run", seen, place, (Sample(5.0, place),))
        assert LinkPosition.decode(kept.encode(), 5.0) == kept


def test_a_position_from_before_exchanges_were_kept_off_is_read() -> None:
    seen = seen_with(replace(filter_of(()), kept_off={}))
    kept = LinkPosition(b"log", b"run", seen, None, (Sample(5.0, None),))
    before = kept.encode().replace(b',"kept_off":{}', b"")
    assert before != kept.encode()
    assert LinkPosition.decode(before, 5.0) == kept


def joined_since(now: Forwarding, *sites: str) -> Forwarding:
    """Those were not in r1, the revision of the tests' batches."""
    return replace(now, absent={"r1": frozenset(sites)})


def two_way(*pairs: str) -> set[tuple[str, str]]:
    return {(one, other) for a, b in pairs for one, other in ((a, b), (b, a))}


CHAIN = mesh_of(two_way("ab", "bc", "cd"), sites="abcd")


def test_what_was_packed_before_a_leaf_joined_does_not_go_there() -> None:
    now = joined_since(forwarding_for(CHAIN, Link("c", "d", "d")), "d")
    assert now.decide(header("a", path="abc")) is ForwardingDecision.JOINED_SINCE
    assert now.decide(replace(header("a", path="abc"), revision="r2")) is ForwardingDecision.SEND
    mark = header("a", path="abc", kind=BatchKind.MARK)
    assert now.decide(mark) is ForwardingDecision.SEND
    assert now.decide(header("a", ("d",), path="abc")) is ForwardingDecision.SEND


def test_a_site_that_joined_in_between_passes_on_what_is_not_for_it() -> None:
    now = joined_since(forwarding_for(CHAIN, Link("b", "c", "c")), "c")
    assert now.decide(header("a", path="ab")) is ForwardingDecision.SEND  # for d
    assert (
        joined_since(now, "c", "d").decide(header("a", path="ab"))
        is ForwardingDecision.JOINED_SINCE
    )
    ring = mesh_of({("a", "b"), ("b", "c"), ("c", "a")}, sites="abc")
    to_c = joined_since(forwarding_for(ring, Link("b", "c", "c")), "c")
    assert to_c.decide(header("a", path="ab")) is ForwardingDecision.JOINED_SINCE  # a has it
    assert to_c.decide(header("b")) is ForwardingDecision.SEND


@given(
    links=GRAPHS,
    joined=st.sets(st.sampled_from(NAMES[1:])),
    rule=st.sampled_from(ForwardingRule),
    seed=st.integers(0, 2**32),
)
def test_whatever_sites_join_and_wherever_all_others_get_what_was_packed_before(
    links: set[tuple[str, str]], joined: set[str], rule: ForwardingRule, seed: int
) -> None:
    mesh = mesh_of(links, rule=rule)
    absent = {"r1": frozenset(joined)}
    got = set(Spread(mesh, random.Random(seed)).run(header("a"), absent).paths)
    reach = within_reach(mesh, "a")
    assert reach - joined <= got <= reach
    if rule is ForwardingRule.COMPLETE or not reach - joined - {"a"}:
        assert not got & joined
    since = replace(header("a"), revision="r2")
    assert set(Spread(mesh, random.Random(seed)).run(since, absent).paths) == reach


def test_in_a_complete_graph_only_the_neighbour_counts() -> None:
    mesh = mesh_of(two_way("ab", "bc", "ca"), rule=ForwardingRule.COMPLETE, sites="abc")
    now = joined_since(forwarding_for(mesh, Link("a", "c", "c")), "c")
    assert now.decide(header("a")) is ForwardingDecision.JOINED_SINCE
    assert joined_since(now, "b").decide(header("a")) is ForwardingDecision.SEND


def test_own_batches_that_a_neighbours_log_is_to_vouch_for_go_there_all_the_same() -> None:
    mesh = mesh_of(two_way("ab"), sites="ab")
    mesh = replace(mesh, exchanges={"secret": Exchange("secret", acks=AckRule.REMOTE)})
    now = joined_since(forwarding_for(mesh, Link("a", "b", "b")), "b")
    assert now.decide(header("a")) is ForwardingDecision.SEND
    assert now.decide(header("a", exchange="open")) is ForwardingDecision.JOINED_SINCE
    assert now.decide(header("x", path="xa")) is ForwardingDecision.JOINED_SINCE


def test_a_new_site_that_begins_at_the_start_sends_the_links_to_it_through_their_logs() -> None:
    former = mesh_of(two_way("ab", "bc"), sites="abc")
    seen = seen_with(forwarding_for(former, Link("b", "c", "c")))
    assert not seen.stranded_by(forwarding_for(CHAIN, Link("b", "c", "c")))
    sites = {**CHAIN.sites, "d": replace(CHAIN.sites["d"], begins=Begins.START)}
    begins = forwarding_for(replace(CHAIN, sites=sites), Link("b", "c", "c"))
    assert seen.stranded_by(begins)
    assert not seen.after(begins).stranded_by(begins)
    back = seen_with(forwarding_for(former, Link("b", "a", "a")))
    assert not back.stranded_by(forwarding_for(replace(CHAIN, sites=sites), Link("b", "a", "a")))


def test_a_strand_carries_the_exchanges_of_its_slot_at_the_receiver_and_all_marks() -> None:
    slots = SlotMap(2, {"secret": 1, "open": 0})
    mesh = mesh_of({("a", "b")}, sites="ab")
    mesh = replace(mesh, sites={**mesh.sites, "b": replace(mesh.sites["b"], slots=slots)})
    to_first, to_second = (forwarding_for(mesh, one) for one in mesh.strands(mesh.links[0]))
    secret, opened = header("a"), header("a", exchange="open")
    assert to_first.decide(secret) is ForwardingDecision.OTHER_SLOT
    assert to_second.decide(opened) is ForwardingDecision.OTHER_SLOT
    assert to_first.sends(opened)
    assert to_second.sends(secret)
    mark = header("a", exchange="", kind=BatchKind.MARK)
    assert to_first.sends(mark)
    assert to_second.sends(mark)
