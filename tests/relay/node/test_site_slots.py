"""Slots of one site in a process are one site to people and commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Any, cast

from federation.slots import SlotMap
from relay.batches.batch import BatchName, Series
from relay.delivery.put_aside import Aside
from relay.node.site_slots import (
    MendingOfSlots,
    SiteOfSlots,
    links_of_slots,
    site_of_slots,
)
from relay.node.stages import Stages
from relay.operator.mending import Look, Mended, Mending, Result
from relay.operator.repair_wanted import Wanted
from relay.operator.repairing import RepairProgress, RepairRequest, Step

MAP = SlotMap(2, {"orders": 0, "prices": 1})


def report(**own: Any) -> dict[str, Any]:
    return {"node_pid": 7, "state": "running", "reason": "", "egress_messages": 0, **own}


def test_counts_are_sums_and_the_worst_slot_speaks_for_the_site() -> None:
    whole = site_of_slots(
        [
            report(delivered=3, gaps=[{"id": "a"}], log={"appended_messages": 1}),
            report(delivered=4, gaps=[{"id": "b"}], log={"appended_messages": 2}, packed=9),
            report(state="down", reason="log: away", delivered=0, gaps=[]),
        ]
    )
    assert (whole["state"], whole["reason"]) == ("down", "slot 2: log: away")
    assert (whole["delivered"], whole["packed"]) == (7, 9)
    assert whole["gaps"] == [{"id": "a"}, {"id": "b"}]
    assert whole["log"] == {"appended_messages": 3}
    assert [slot["state"] for slot in whole["slots"]] == ["running", "running", "down"]


def test_a_count_that_one_slot_does_not_know_is_unknown() -> None:
    assert site_of_slots([report(), report(egress_messages=-1)])["egress_messages"] == -1


def test_a_link_of_several_slots_has_sums_and_the_longest_lag() -> None:
    one = {"from": "paris", "to": "tokyo", "state": "running", "reason": "", "acked": 5}
    other = {**one, "state": "lagging", "reason": "it lags", "lag_messages": 8}
    lima = {**one, "to": "lima", "lag_messages": 0}
    first, second = links_of_slots([[{**one, "lag_messages": 3}, lima], [other]])
    assert (first["acked"], first["lag_messages"], first["state"]) == (10, 8, "lagging")
    assert second == lima


def test_lanes_of_several_slots_are_combined_lane_by_lane() -> None:
    lane = {"state": "running", "reason": "", "acked": 1, "lag_messages": 0}
    link = {"from": "paris", "to": "tokyo", **lane, "lanes": {"normal": lane, "bulk": lane}}
    (whole,) = links_of_slots([[link], [link]])
    assert {name: one["acked"] for name, one in whole["lanes"].items()} == {"normal": 2, "bulk": 2}


class Slot:
    """Slot that repairs and mends nothing, and notes the requests."""

    def __init__(self, *settled: BatchName) -> None:
        self.settled = set(settled)
        self.requests: list[RepairRequest] = []
        self.repairing = self
        self.proof = self
        self.expected: list[bytes] = []

    async def send(self, request: RepairRequest, rate: float) -> AsyncGenerator[Step, None]:
        self.requests.append(request)
        yield RepairProgress(1)
        yield list(request.wanted)

    async def expect(self, identities: Collection[bytes], since_ms: int) -> None:
        self.expected += identities

    async def look(self, aside: Aside, most: int) -> Look:
        return Look(2, [cast(Any, self)])

    async def retry(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        yield Result("id", Mended.DELIVERED)

    async def export_ledger(self) -> str:
        return "" if self.settled else "disk full"


def named(exchange: str) -> BatchName:
    return BatchName(Series("lima", b"i" * 8, exchange, 0, ()), 1)


async def test_a_repair_asks_each_slot_for_its_exchanges_and_names_what_is_missing_once() -> None:
    orders, prices = Slot(named("orders")), Slot()
    site = SiteOfSlots(cast(dict[int, Stages], {0: orders, 1: prices}), MAP)
    wanted = [Wanted(named(name), 0, b"", ("tokyo",)) for name in ("prices", "orders", "prices")]
    steps = [step async for step in site.repairing.send(RepairRequest(wanted), 1.0)]
    assert [one.wanted for one in orders.requests] == [[wanted[1]]]
    assert [one.wanted for one in prices.requests] == [[wanted[0], wanted[2]]]
    assert steps[:2] == [RepairProgress(1), RepairProgress(1)]
    assert steps[2:] == [[wanted[1], wanted[0], wanted[2]]]
    assert named("orders") in site.settled
    assert named("prices") not in site.settled
    await site.expect([b"x"], 0)
    assert orders.expected == prices.expected == [b"x"]
    assert await site.export_ledger() == "disk full"


async def test_what_was_put_aside_is_of_all_slots() -> None:
    slots = [Slot(), Slot(), Slot()]
    mending = MendingOfSlots(cast(list[Mending], slots))
    look = await mending.look(Aside.DEAD_LETTERS, 2)
    assert (look.total, look.messages) == (6, slots[:2])
    assert len([one async for one in mending.retry(Aside.DEAD_LETTERS, None)]) == 3
