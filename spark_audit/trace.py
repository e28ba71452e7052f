"""Trace one message through the ledgers of all sites.

Copies of a message may lie in several batches, even of several origins: they are shown together,
since barriers know them as one message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from federation.partitions import partition_of
from federation.wording import numbered
from relay.batches.time_offsets import unpack_offsets
from relay.ledger.rows import CONFLICT, OUTCOME_MASK, REDELIVERED, REPAIRED, Outcome
from spark_audit.judge.expectation import Addressed
from spark_audit.judge.positions import SEQUENCE_BITS, FlowAt, Positions, SeenIncarnation
from spark_audit.ledger_search import LedgerSearch, Row
from spark_audit.ledgers.files import LedgerPath
from spark_audit.ledgers.states import StateRun, renewed_ms, until_lost
from spark_audit.period import json_time, milliseconds


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Action of a stage. Times in ms since 1970, by the site's own clock (the origin's, for
    publishing). `at_ms` is None if nothing was done, with the reason in `text`.
    """

    at_ms: int | None
    site: str
    what: str
    """Kind: published, packed, sent, came, settled, or missing."""
    text: str
    batch: str
    entry: int | None = None
    path: tuple[str, ...] = ()
    content: str | None = None


@dataclass(slots=True)
class TracedMessage:
    """Identity within its exchange."""

    exchange: str
    identity: str
    steps: list[TraceStep] = field(default_factory=list)

    @property
    def published_ms(self) -> int | None:
        times = [step.at_ms for step in self.steps if step.what == "published" and step.at_ms]
        return min(times, default=None)


@dataclass(slots=True)
class TraceResult:
    """Traced messages, and the searched places."""

    messages: list[TracedMessage]
    files: int
    sites: list[str]
    dates: tuple[str, str] | None
    bad: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": [
                {
                    "exchange": message.exchange,
                    "identity": message.identity,
                    "published": _time(message.published_ms),
                    "steps": [
                        {
                            "time": _time(step.at_ms),
                            "site": step.site,
                            "what": step.what,
                            "said": step.text,
                            "batch": step.batch,
                            "entry": step.entry,
                            "path": list(step.path),
                            "content": step.content,
                        }
                        for step in message.steps
                    ],
                }
                for message in self.messages
            ],
            "searched": {"files": self.files, "sites": self.sites, "dates": self.dates},
            "unreadable": self.bad,
        }


def _time(ms: int | None) -> str | None:
    return None if ms is None else json_time(ms)


@dataclass(slots=True)
class _OfDeliverer:
    """Rows of one site's deliverer, in all slots that have had an exchange. `slot`: the present
    one; `missing`: others that had the exchange since the message, without a file; `runs`: the
    states with rows.
    """

    slot: int
    missing: list[int]
    rows: list[Row]
    runs: list[StateRun]

    @classmethod
    def read(
        cls,
        search: LedgerSearch,
        dates: tuple[str, str],
        site: str,
        packed: Row,
    ) -> _OfDeliverer | None:
        """Read the files of these dates, or return None if there are none. `packed`: the origin's
        row that packed the message.
        """
        exchange, partition = packed["exchange"], partition_of(packed["lane"])
        since_ms = milliseconds(packed["recorded"])
        # A site may be cut into other slots while a message is under way.
        maps = [
            mesh.sites[site].slots for mesh in search.revisions.latest_first() if site in mesh.sites
        ]
        slots = [one.of(exchange, partition) for one in maps] or [0]
        by_slot: dict[int, list[LedgerPath]] = {}
        for file in search.of_stage("delivered", dates=dates):
            if file.site == site and file.slot in slots:
                by_slot.setdefault(file.slot, []).append(file)
        if not by_slot:
            return None
        since = {
            one.slots.of(exchange, partition)
            for one in search.revisions.slots_of(site)
            if one.to_ms is not None and one.to_ms > since_ms
        }
        found = cls(slots[0], sorted(since - set(by_slot)), [], [])
        for slot, files in by_slot.items():
            of_state: dict[str, list[Row]] = {}
            for row in search.matching(files, _OF_FLOWS, [("stage", "=", "delivered")]):
                of_state.setdefault(row["state"], []).append(row)
            for state, rows in of_state.items():
                found.rows += rows
                found.runs.append(_run_of(slot, state, rows))
        return found

    def through(self, flow: FlowAt) -> list[tuple[FlowAt, str, int]]:
        """Return the positions of the flow, as `Positions.of` takes them: those written before any
        state was lost.
        """
        whole = until_lost(self.runs)
        return [
            (
                flow,
                one["incarnation"].hex(),
                one["incarnation_sequence"] - (one["event"] != "through"),
            )
            for one in self.rows
            if (one["origin"], one["exchange"], one["lane"]) == flow[1:]
            and one["state"] in whole
            and one["event"] in ("through", "batch", "void", "quarantined")
            and one["incarnation"] is not None
            and one["incarnation_sequence"] is not None
        ]

    def until_ms(self) -> int:
        """Return the time of the last row in the slot that has the exchange now."""
        goes_on = [run for run in self.runs if not run.is_ended] or self.runs
        here = [run for run in goes_on if run.slot == self.slot] or goes_on
        return max(run.to_ms for run in here)


_OF_FLOWS = (
    *("state", "number", "stage", "event", "origin", "exchange", "lane", "incarnation"),
    *("incarnation_sequence", "recorded"),
)
"""Columns that show what a deliverer has passed."""


def _run_of(slot: int, state: str, rows: Collection[Row]) -> StateRun:
    """Return the run of all rows of one state. Rows may stand in two files."""
    numbers = {row["number"] for row in rows}
    times = [milliseconds(row["recorded"]) for row in rows]
    last = max(rows, key=lambda row: row["number"])
    is_whole = len(numbers) == max(numbers) - min(numbers) + 1
    is_ended = is_whole and last["event"] == "ended"
    return StateRun(slot, state, min(numbers), min(times), max(times), is_ended)


class Absence:
    """Search for the reason why an expected site has no row, in files of these dates."""

    def __init__(self, search: LedgerSearch, dates: tuple[str, str]) -> None:
        self._search = search
        self._dates = dates

    def why(self, site: str, row: Row) -> str:
        """Return the reason for a site (by name). `row`: the origin's row that packed the
        message.
        """
        rows = _OfDeliverer.read(self._search, self._dates, site, row)
        if rows is None:
            return "was to have it, and has no ledger for this time: cannot be told"
        if rows.missing:
            return (
                f"was to have it, and has no ledger of {numbered('slot', rows.missing)},"
                " where the exchange was in this time: cannot be told"
            )
        if not rows.runs:
            return "was to have it, and its ledger has no row that can be read: cannot be told"
        flow = FlowAt(site, row["origin"], row["exchange"], row["lane"])
        positions = Positions.of(self._seen(row), rows.through(flow))
        rank = positions.rank.get((row["origin"], row["incarnation"].hex()), 0)
        passed = positions.passed.get(flow)
        if passed is not None and rank << SEQUENCE_BITS | row["incarnation_sequence"] <= passed:
            return (
                "lost: was to have it, is done with later batches of its origin, and never had it"
            )
        if renewed_ms(rows.runs) is not None:
            return "was to have it; its state folder was made anew since: cannot be told"
        until = datetime.fromtimestamp(rows.until_ms() / 1000, UTC)
        return (
            f"was to have it, has no row of it, and tells up to {until:%Y-%m-%d %H:%M:%S}: pending"
        )

    def _seen(self, row: Row) -> list[SeenIncarnation]:
        """Return the rows of each of the origin's incarnations."""
        files = [
            file
            for file in self._search.of_stage("packed", dates=self._dates)
            if file.site == row["site"]
        ]
        columns = ["origin", "incarnation", "state", "number", "recorded"]
        conditions = [("stage", "=", "packed"), ("origin", "=", row["origin"])]
        return [
            SeenIncarnation(
                *(one["origin"], one["incarnation"].hex(), one["state"], one["number"]),
                milliseconds(one["recorded"]),
            )
            for one in self._search.matching(files, columns, conditions)
            if one["incarnation"] is not None
        ]


ANSWERS = {
    Outcome.PENDING: "nothing yet",
    Outcome.DELIVERED: "delivered: the site's broker confirmed it",
    Outcome.UNROUTED: "unrouted: no queue is bound for it there",
    Outcome.DUPLICATE: "suppressed: the barrier knew it already",
    Outcome.EXPIRED: "expired: its own expiration had passed",
    Outcome.DEAD: "dead-lettered: refused too often",
    Outcome.QUARANTINED: "in quarantine: not to be guessed about",
    Outcome.OWN: "its own: entered at the barrier, not published back",
    Outcome.VOID: "void: its batch does not count",
    Outcome.SENT: "packed",
    Outcome.DEFERRED: "refused, and tried again while later messages go on",
}
_FLAGS = {
    CONFLICT: "its identity was known with other content",
    REDELIVERED: "marked x-mesh-redelivered",
    REPAIRED: "sent by a repair",
}
_EVENTS = {
    "void": "void: the batch does not count, since its packer's time was over",
    "quarantined": "in quarantine: the batch cannot be decoded there",
    "retried": "an operator had it sent again",
    "dropped": "an operator gave it up",
}
_NAME = (
    *("origin", "incarnation", "exchange", "lane", "destinations", "sequence"),
    *("fragment", "kind"),
)
_ORDER = ("published", "packed", "sent", "came", "settled", "missing")


class Life:
    """History of one message. `packed` and `settled`: rows with the message, and its
    entry in them.
    """

    def __init__(self, search: LedgerSearch, dates: tuple[str, str]) -> None:
        self._search = search
        self._dates = dates
        self._names = search.revisions.site_names()
        self.packed: list[tuple[Row, int]] = []
        self.settled: list[tuple[Row, int]] = []

    def steps(self) -> list[TraceStep]:
        """Return the steps in order of time, missing ones last."""
        steps = [step for row, entry in self.packed for step in self._packing(row, entry)]
        steps += [self._settling(row, entry) for row, entry in self.settled]
        of_batches = list(self._of_batches())
        steps += [self._event(row) for row in of_batches]
        reported = {row["site"] for row, _ in self.settled}
        reported |= {row["site"] for row in of_batches if row["event"] in _EVENTS}
        steps.sort(key=lambda step: (step.at_ms or 0, _ORDER.index(step.what)))
        return steps + self._missing(reported)

    def _packing(self, row: Row, entry: int) -> Iterable[TraceStep]:
        batch = batch_name(row)
        if not row["fragment"]:
            at_ms = unpack_offsets(row["published"], milliseconds(row["first_published"]))[entry]
            yield TraceStep(at_ms, row["site"], "published", "taken off its exchange", batch, entry)
        piece = f", piece {row['fragment']} of it" if row["fragment"] is not None else ""
        text = (
            f"in the site's log: entry {entry} of {row['count']} of {batch}{piece},"
            f" under revision {row['revision']}"
        )
        if row["kind"] == "repair":
            text += ", by a repair"
        yield TraceStep(milliseconds(row["recorded"]), row["site"], "packed", text, batch, entry)

    def _settling(self, row: Row, entry: int) -> TraceStep:
        byte = row["outcomes"][entry] if row["outcomes"] else 0
        outcome = Outcome(byte & OUTCOME_MASK)
        texts = [_EVENTS.get(row["event"], ANSWERS[outcome])]
        texts += [words for flag, words in _FLAGS.items() if byte & flag]
        at_ms = milliseconds(row["recorded"])
        if row["delivered"]:
            at_ms = unpack_offsets(row["delivered"], at_ms)[entry]
        content = (row["contents"] or b"")[8 * entry : 8 * entry + 8].hex() or None
        return TraceStep(
            at_ms,
            row["site"],
            "settled",
            "; ".join(texts),
            batch_name(row),
            row["first_entry"] + entry,
            self._path(row),
            content,
        )

    def _of_batches(self) -> Iterable[Row]:
        """Yield rows of links, and of sites that treated a whole batch, for the message's
        batches.
        """
        batches = {batch_name(row): row for row, _ in [*self.packed, *self.settled]}
        if not batches:
            return
        files = self._search.of_stage("linked_out", "linked_in", "delivered", dates=self._dates)
        conditions = [
            ("origin", "in", sorted({row["origin"] for row in batches.values()})),
            ("sequence", "in", sorted({row["sequence"] for row in batches.values()})),
        ]
        columns = [*_NAME, "site", "stage", "event", "recorded", "path", "neighbour", "count"]
        wanted = {"linked_out", "linked_in"}
        for row in self._search.matching(files, columns, conditions):
            if batch_name(row) in batches and (row["stage"] in wanted or row["event"] in _EVENTS):
                if row["stage"] == "delivered" and row["event"] in ("retried", "dropped"):
                    continue  # of single messages: these have their identities
                yield row

    def _event(self, row: Row) -> TraceStep:
        batch = batch_name(row)
        piece = f" (piece {row['fragment']})" if row["fragment"] is not None else ""
        if row["stage"] == "linked_out":
            what, text = "sent", f"was told that {row['neighbour']} has it{piece}"
        elif row["stage"] == "linked_in":
            what, text = "came", f"from {row['neighbour']}, in the site's log{piece}"
        else:
            what, text = "settled", _EVENTS[row["event"]]
        return TraceStep(
            milliseconds(row["recorded"]), row["site"], what, text, batch, path=self._path(row)
        )

    def _path(self, row: Row) -> tuple[str, ...]:
        return tuple(self._names.get(one, one) for one in row["path"])

    def _missing(self, reported: Collection[str]) -> list[TraceStep]:
        steps = []
        absence = Absence(self._search, self._dates)
        for row, entry in self.packed:
            kind = Addressed(
                row["revision"], row["exchange"], row["origin"], tuple(row["destinations"])
            )
            batch = batch_name(row)
            expected = self._search.revisions.expected(kind)
            if expected is None:
                text = f"who was to have it is not known: no ledger has revision {row['revision']}"
                steps.append(TraceStep(None, row["site"], "missing", text, batch, entry))
                continue
            for cluster in expected:
                site = self._names.get(cluster, cluster)
                if site not in reported:
                    text = absence.why(site, row)
                    steps.append(TraceStep(None, site, "missing", text, batch, entry))
        return list({(step.site, step.text): step for step in steps}.values())


def batch_name(row: Row) -> str:
    """Return a batch's name as `status` and findings show it."""
    destinations = ",".join(row["destinations"]) or "*"
    return (
        f"{row['origin']}/{(row['incarnation'] or b'').hex()}/{row['exchange']}.{row['lane']}"
        f">{destinations}/{row['sequence']}"
    )


def trace(
    search: LedgerSearch, identities: Collection[bytes], day: date | None = None
) -> TraceResult:
    """Trace all messages with one of these identities. `day`: approximate day of publishing, which
    limits the search to few files.
    """
    dates = (_day(day, -1), _day(day, 1)) if day else ("", "9")
    packed = list(search.having("packed", identities, dates))
    # Links and deliverers act later; a clock may be a day behind at most.
    begin = min((_day(row["recorded"].date(), -1) for row, _ in packed), default=dates[0])
    since = (begin, "9")
    settled = list(search.having("delivered", identities, since))
    found: dict[tuple[str, str], Life] = {}
    for rows, is_packed in ((packed, True), (settled, False)):
        for row, entries in rows:
            for entry in entries:
                identity = row["identities"][16 * entry : 16 * entry + 16].hex()
                life = found.setdefault((row["exchange"] or "", identity), Life(search, since))
                (life.packed if is_packed else life.settled).append((row, entry))
    messages = [
        TracedMessage(exchange, identity, life.steps())
        for (exchange, identity), life in sorted(found.items())
    ]
    files = search.of_stage("packed", dates=dates) + search.of_stage("delivered", dates=since)
    days = sorted({file.date for file in files})
    return TraceResult(
        messages,
        files=len(search.searched),
        sites=search.sites,
        dates=(days[0], days[-1]) if days else None,
        bad=search.bad | dict.fromkeys(search.revisions.unreadable, "not a mesh document"),
    )


def _day(day: date, more: int) -> str:
    return (day + timedelta(days=more)).isoformat()
