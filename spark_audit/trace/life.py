"""One message's rows, put together: what became of it, step by step."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from relay.ledger.rows import CONFLICT, OUTCOME_MASK, REDELIVERED, REPAIRED, Outcome, unpack_offsets
from spark_audit.judge.expectation import Addressed
from spark_audit.period import milliseconds
from spark_audit.trace.absence import Absence
from spark_audit.trace.search import LedgerSearch, Row
from spark_audit.trace.told import Step

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
    """`packed` and `settled`: rows with it, and where in them it stands."""

    def __init__(self, search: LedgerSearch, dates: tuple[str, str]) -> None:
        self._search = search
        self._dates = dates
        self._names = search.revisions.site_names()
        self.packed: list[tuple[Row, int]] = []
        self.settled: list[tuple[Row, int]] = []

    def steps(self) -> list[Step]:
        """In the order of their times, what is missing last."""
        steps = [step for row, entry in self.packed for step in self._packing(row, entry)]
        steps += [self._settling(row, entry) for row, entry in self.settled]
        of_batches = list(self._of_batches())
        steps += [self._event(row) for row in of_batches]
        told = {row["site"] for row, _ in self.settled}
        told |= {row["site"] for row in of_batches if row["event"] in _EVENTS}
        steps.sort(key=lambda step: (step.at_ms or 0, _ORDER.index(step.what)))
        return steps + self._missing(told)

    def _packing(self, row: Row, entry: int) -> Iterable[Step]:
        batch = batch_name(row)
        if not row["fragment"]:
            at_ms = unpack_offsets(row["published"], milliseconds(row["first_published"]))[entry]
            yield Step(at_ms, row["site"], "published", "taken off its exchange", batch, entry)
        piece = f", piece {row['fragment']} of it" if row["fragment"] is not None else ""
        said = (
            f"in the site's log: entry {entry} of {row['count']} of {batch}{piece},"
            f" under revision {row['revision']}"
        )
        if row["kind"] == "repair":
            said += ", by a repair"
        yield Step(milliseconds(row["recorded"]), row["site"], "packed", said, batch, entry)

    def _settling(self, row: Row, entry: int) -> Step:
        byte = row["outcomes"][entry] if row["outcomes"] else 0
        outcome = Outcome(byte & OUTCOME_MASK)
        said = [_EVENTS.get(row["event"], ANSWERS[outcome])]
        said += [words for flag, words in _FLAGS.items() if byte & flag]
        at_ms = milliseconds(row["recorded"])
        if row["delivered"]:
            at_ms = unpack_offsets(row["delivered"], at_ms)[entry]
        content = (row["contents"] or b"")[8 * entry : 8 * entry + 8].hex() or None
        return Step(
            at_ms,
            row["site"],
            "settled",
            "; ".join(said),
            batch_name(row),
            row["first_entry"] + entry,
            self._path(row),
            content,
        )

    def _of_batches(self) -> Iterable[Row]:
        """Rows of links, and of sites that dealt with the whole batch, of the batches with it."""
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

    def _event(self, row: Row) -> Step:
        batch = batch_name(row)
        piece = f" (piece {row['fragment']})" if row["fragment"] is not None else ""
        if row["stage"] == "linked_out":
            what, said = "sent", f"was told that {row['neighbour']} has it{piece}"
        elif row["stage"] == "linked_in":
            what, said = "came", f"from {row['neighbour']}, in the site's log{piece}"
        else:
            what, said = "settled", _EVENTS[row["event"]]
        return Step(
            milliseconds(row["recorded"]), row["site"], what, said, batch, path=self._path(row)
        )

    def _path(self, row: Row) -> tuple[str, ...]:
        return tuple(self._names.get(one, one) for one in row["path"])

    def _missing(self, told: Collection[str]) -> list[Step]:
        steps = []
        absence = Absence(self._search, self._dates)
        for row, entry in self.packed:
            kind = Addressed(
                row["revision"], row["exchange"], row["origin"], tuple(row["destinations"])
            )
            batch = batch_name(row)
            expected = self._search.revisions.expected(kind)
            if expected is None:
                said = f"who was to have it is not known: no ledger has revision {row['revision']}"
                steps.append(Step(None, row["site"], "missing", said, batch, entry))
                continue
            for cluster in expected:
                site = self._names.get(cluster, cluster)
                if site not in told:
                    said = absence.why(site, row)
                    steps.append(Step(None, site, "missing", said, batch, entry))
        return list({(step.site, step.said): step for step in steps}.values())


def batch_name(row: Row) -> str:
    """As `status` and the findings have it."""
    destinations = ",".join(row["destinations"]) or "*"
    return (
        f"{row['origin']}/{(row['incarnation'] or b'').hex()}/{row['exchange']}.{row['lane']}"
        f">{destinations}/{row['sequence']}"
    )
