"""Slots of one site that a process serves, as the one site that people and commands see."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from federation.slots import SlotMap
from relay.batches.batch import BatchName
from relay.delivery.put_aside import Aside
from relay.node.link_reports import one_link
from relay.node.stages import Stages
from relay.operator.mending import Look, Mending, Result
from relay.operator.repair_wanted import Wanted
from relay.operator.repairing import RepairRequest, Step

T = TypeVar("T")

_FROM_BAD_TO_GOOD = (
    *("stopped", "down", "blocked", "starting", "standby"),
    *("paused", "draining", "drained", "running"),
)


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
    """Repairs of a site: each slot repeats the messages of its exchanges."""

    slots: Sequence[Stages]
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
        for number, stages in enumerate(self.slots):
            wanted = [
                one for one in request.wanted if self.map.of(one.batch.series.exchange) == number
            ]
            if not wanted:
                continue
            async for step in work(stages, RepairRequest(wanted, request.by, request.take_pieces)):
                if isinstance(step, list):
                    missing += step
                else:
                    yield step
        yield missing


@dataclass(frozen=True, slots=True)
class SettledOfSlots:
    """Names that any slot of a site has settled."""

    slots: Sequence[Stages]

    def __contains__(self, name: BatchName) -> bool:
        return any(name in stages.settled for stages in self.slots)


@dataclass(frozen=True, slots=True)
class SiteOfSlots:
    """Running slots of a site that take part in a repair."""

    slots: Sequence[Stages]
    map: SlotMap

    @property
    def repairing(self) -> RepairingSlots:
        return RepairingSlots(self.slots, self.map)

    @property
    def settled(self) -> SettledOfSlots:
        """Names of the batches that the site has settled."""
        return SettledOfSlots(self.slots)

    async def expect(self, identities: Collection[bytes], since_ms: int) -> None:
        """Look the identities up in the ledger of each slot. Raises LedgerUnreadable."""
        for stages in self.slots:
            await stages.proof.expect(identities, since_ms)

    async def export_ledger(self) -> str:
        """Write all ledger rows into files; return the failures, empty if there were none."""
        failures = [await stages.export_ledger() for stages in self.slots]
        return "; ".join(failure for failure in failures if failure)


def site_of_slots(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the reports of a site's slots: sums of counts, the worst state with its reason, and
    below `slots` each slot's own figures.
    """
    worst = min(reports, key=lambda report: _FROM_BAD_TO_GOOD.index(report["state"]))
    whole: dict[str, Any] = {}
    for name in dict.fromkeys(name for report in reports for name in report):
        values = [report[name] for report in reports if report.get(name) is not None]
        whole[name] = _together(values) if values else None
    slot = reports.index(worst)
    whole |= {
        "state": worst["state"],
        "reason": worst["reason"] and f"slot {slot}: {worst['reason']}",
        "node_pid": worst["node_pid"],
        "links_in": links_of_slots([report.get("links_in", []) for report in reports]),
        "slots": [
            {name: report.get(name) for name in ("state", "reason", *_OF_SLOT)}
            for report in reports
        ],
    }
    return whole


_OF_SLOT = ("egress_messages", "undelivered_messages", "packed", "delivered", "log")


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
