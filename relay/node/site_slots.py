"""Slots of one site that a process serves, as the one site that people and commands see."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from federation.partitions import partition_of
from federation.slots import SlotMap
from relay.batches.batch import BatchName, Series
from relay.delivery.context import DeliveryCounters
from relay.delivery.put_aside import Aside
from relay.node.link_reports import one_link
from relay.node.site_folder import STANDBY
from relay.node.stages import Stages
from relay.operator.mending import Look, Mending, Result
from relay.operator.repair_wanted import Wanted
from relay.operator.repairing import RepairRequest, Step
from relay.operator.site_state import SiteState

T = TypeVar("T")

_FROM_BAD_TO_GOOD = tuple(state.value for state in SiteState)


class MendingOfSlots:
    """Mending of a site: each slot has queues of its own for what was put aside."""

    def __init__(self, slots: Sequence[Mending]) -> None:
        self._slots = slots

    async def look(self, aside: Aside, most: int) -> Look:
        """Return the first messages of all slots. Raises MendingError."""
        looks = [await slot.look(aside, most) for slot in self._slots]
        messages = [message for look in looks for message in look.messages]
        return Look(sum(look.total for look in looks), messages[:most])

    async def retry(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Send messages again, as `Mending.retry`. Raises MendingError."""
        for slot in self._slots:
            async for result in slot.retry(aside, ids):
                yield result

    async def drop(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Give messages up, as `Mending.drop`. Raises MendingError."""
        for slot in self._slots:
            async for result in slot.drop(aside, ids):
                yield result


@dataclass(frozen=True, slots=True)
class RepairingSlots:
    """Repairs of a site: each slot that runs here repeats the messages of its exchanges."""

    slots: Mapping[int, Stages]
    map: SlotMap

    def look(self, request: RepairRequest) -> AsyncGenerator[Step, None]:
        """Look without sending, as `Repairing.look`."""
        return self._each(request, lambda stages, part: stages.repairing.look(part))

    def send(self, request: RepairRequest, rate: float) -> AsyncGenerator[Step, None]:
        """Send messages again, as `Repairing.send`. Raises RepairFailed."""
        return self._each(request, lambda stages, part: stages.repairing.send(part, rate))

    async def _each(
        self,
        request: RepairRequest,
        work: Callable[[Stages, RepairRequest], AsyncGenerator[Step, None]],
    ) -> AsyncGenerator[Step, None]:
        missing: list[Wanted] = []
        for number, stages in self.slots.items():
            wanted = [one for one in request.wanted if self._slot_of(one.batch.series) == number]
            if not wanted:
                continue
            async for step in work(stages, RepairRequest(wanted, request.by, request.take_pieces)):
                if isinstance(step, list):
                    missing += step
                else:
                    yield step
        yield missing

    def _slot_of(self, series: Series) -> int:
        return self.map.of(series.exchange, partition_of(series.lane))


@dataclass(frozen=True, slots=True)
class SettledOfSlots:
    """Names that any slot of a site has settled, of those that run here."""

    slots: Collection[Stages]

    def __contains__(self, name: BatchName) -> bool:
        return any(name in stages.settled for stages in self.slots)


@dataclass(frozen=True, slots=True)
class SiteOfSlots:
    """Slots of a site that run here, by number, which take part in a repair."""

    slots: Mapping[int, Stages]
    map: SlotMap

    @property
    def repairing(self) -> RepairingSlots:
        return RepairingSlots(self.slots, self.map)

    @property
    def settled(self) -> SettledOfSlots:
        """Names of the batches that these slots have settled."""
        return SettledOfSlots(self.slots.values())

    async def expect(self, identities: Collection[bytes], since_ms: int) -> None:
        """Look the identities up in the ledger of each slot. Raises LedgerUnreadable."""
        for stages in self.slots.values():
            await stages.proof.expect(identities, since_ms)

    async def export_ledger(self) -> str:
        """Write all ledger rows into files; return the failures, empty if there were none."""
        failures = [await stages.export_ledger() for stages in self.slots.values()]
        return "; ".join(failure for failure in failures if failure)


def site_of_slots(slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the reports of all slots of a site: sums of counts, the worst state with its reason,
    and below `slots` each slot's own report.
    """
    return _combined(dict(enumerate(slots))) | {"slots": list(slots)}


def worst_of(states: Iterable[str]) -> str:
    """Return the worst of the states of a site's slots, but for those that run elsewhere."""
    found = list(states)
    here = [state for state in found if state != STANDBY] or found
    return min(here, key=_FROM_BAD_TO_GOOD.index) if len(here) > 1 else here[0]


def node_of_slots(slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the reports of a site's slots at one node, of which others may run elsewhere."""
    here = {n: report for n, report in enumerate(slots) if report["state"] != STANDBY}
    # What a node has done at slots that others run by now counts on: counters never fall.
    counts = _sum([{name: slot[name] for name in _COUNTERS if name in slot} for slot in slots])
    return _combined(here or dict(enumerate(slots))) | counts | {"slots": list(slots)}


def _combined(slots: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    reports = list(slots.values())
    worst = min(slots, key=lambda slot: _FROM_BAD_TO_GOOD.index(slots[slot]["state"]))
    whole: dict[str, Any] = {}
    for name in dict.fromkeys(name for report in reports for name in report):
        if name not in _OF_A_SLOT_ALONE:
            values = [report[name] for report in reports if report.get(name) is not None]
            whole[name] = _together(values) if values else None
    reason = slots[worst]["reason"]
    return whole | {
        "state": slots[worst]["state"],
        "reason": reason and f"slot {worst}: {reason}",
        "node_pid": slots[worst].get("node_pid"),
        "links_in": links_of_slots([report.get("links_in", []) for report in reports]),
    }


_OF_A_SLOT_ALONE = ("slot", "copy")
_COUNTERS = tuple(one.name for one in fields(DeliveryCounters))


def _together(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, bool) or not isinstance(first, int | float | dict | list):
        return first
    if isinstance(first, list):
        return [one for value in values for one in value]
    if isinstance(first, dict):
        return _sum(values)
    # An unknown count (-1) makes the sum unknown.
    return -1 if -1 in values else sum(values)


def _sum(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum figures of the same names; of anything else the first counts."""
    if all(type(one) is int for value in values for one in value.values()):
        return dict(sum((Counter(value) for value in values), Counter[str]()))
    return {name: one for value in reversed(values) for name, one in value.items()}


def links_of_slots(reports: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Combine the reports of each link by the slots that it ends in, in the first one's order."""
    by_link: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for slot in reports:
        for link in slot:
            by_link.setdefault((link["from"], link["to"]), []).append(link)
    return [one_link(found) for found in by_link.values()]
