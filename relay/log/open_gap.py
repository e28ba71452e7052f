"""Gaps: where retention has eaten batches that a stage of the node still needed.

Nothing goes on silently behind a gap: the stage stops, the ledger has a row, and a person decides
(`isthmus accept-gap`). From then on the stage's position is the place `just_before` the first
record that the log has: a place without a batch, which a reader finds by its offset alone. If
retention has eaten more by then, there is a new gap.

A batch whose content is gone from the content store is a gap of one batch, whose place is the gap's
end, for a stage that needs the batch and is done with all before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from relay.batches.batch import EVERY_SITE, BatchName, Flow, Place, Series
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.log.reader import ContentGap, LogGap
from relay.log.recent_names import Seen

HINT = "`isthmus accept-gap FILE SITE` shows what is missing, and has it go on with what there is"
_NO_BATCH = Series("", bytes(8), "", 0, EVERY_SITE)


def gap_reason(gap: LogGap) -> str:
    """State of the stopped stage, for people."""
    return f"gap: {gap}; {HINT}"


def just_before(first: int) -> Place:
    """Place before the record at offset `first` (above 0), whatever stood there."""
    return Place(first - 1, BatchName(_NO_BATCH, first - 1))


START = just_before(0)
"""Begin of a gap for a stage that was done with nothing; no reader begins there."""


def name_before(place: Place) -> str:
    """Name of the last batch that a stage was done with; for an accepted gap, its end in words."""
    if place == START:
        return "the log's start"
    if place.name.series == _NO_BATCH:
        return f"what was accepted as gone, up to offset {place.offset}"
    return str(place.name)


def gap_row(
    gap: LogGap, stage: Stage, now_ms: int, *, neighbour: str = "", flow: Flow | None = None
) -> LedgerRow:
    """Ledger row of a gap: of a link to `neighbour`, or of a single `flow`."""
    return LedgerRow(
        stage=stage,
        recorded_ms=now_ms,
        event=Event.GAP,
        origin=flow.origin if flow else "",
        exchange=flow.exchange if flow else "",
        lane=flow.lane if flow else 0,
        neighbour=neighbour,
        position=name_before(gap.place),
        reason=str(gap),
    )


@dataclass(frozen=True, slots=True)
class GoneRange:
    """Batches of a series that are gone: sequences `first` to `last`, with holes where the stage
    did not need them. `origin` is a cluster ID, `run` the incarnation in hexadecimal digits.
    """

    origin: str
    run: str
    exchange: str
    first: int
    last: int
    batches: int
    messages: int


@dataclass(frozen=True, slots=True)
class OpenGap:
    """Batches that a stage still needed and the log has no more: offsets above `offset` and below
    `first`. Times in ms since 1970.
    """

    stage: Stage
    after: str
    """Name of the last batch that the stage was done with."""
    offset: int
    first: int
    since_ms: int
    link: str = ""
    neighbour: str = ""
    origin: str = ""
    exchange: str = ""
    lane: int = 0
    gone: tuple[GoneRange, ...] = ()
    is_all_named: bool = False
    """True if `gone` names all that is gone; otherwise `gone` is what the node remembers."""
    lost: str = ""
    """Name of the batch of which the content is gone, and nothing else; empty: retention has eaten
    all that is missing."""

    @classmethod
    def of(
        cls,
        gap: LogGap,
        stage: Stage,
        now_ms: int,
        names: Iterable[Seen],
        is_needed: Callable[[BatchName], bool],
        *,
        link: str = "",
        neighbour: str = "",
        flow: Flow | None = None,
    ) -> OpenGap:
        """Describe a gap from the names that the log had lately, in its order; `is_needed` selects
        those that the stage still needed.
        """
        offset, lost = gap.place.offset, ""
        gone, is_all_named = _gone(gap, names, is_needed)
        if isinstance(gap, ContentGap):
            offset, lost = gap.lost.offset - 1, str(gap.lost.name)
            gone, is_all_named = (_lost_range(gap.lost.name),), True
        return cls(
            stage,
            name_before(gap.place),
            offset,
            gap.first,
            now_ms,
            link,
            neighbour,
            flow.origin if flow else "",
            flow.exchange if flow else "",
            flow.lane if flow else 0,
            gone,
            is_all_named,
            lost,
        )

    @property
    def key(self) -> str:
        """Name of the stopped stage, which has one gap at a time."""
        if self.link:
            return f"link {self.link}"
        return f"flow {self.origin}/{self.exchange}.{self.lane}" if self.origin else "delivery"

    @property
    def id(self) -> str:
        """Digest of exactly this gap, which changes when the gap grows."""
        identity = f"{self.key}|{self.after}|{self.offset}|{self.first}"
        return hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()

    @property
    def messages(self) -> int | None:
        """Number of messages gone, or None if unknown."""
        return sum(gone.messages for gone in self.gone) if self.is_all_named else None

    @property
    def end(self) -> Place:
        """Place behind which a stage goes on once a person has accepted the gap."""
        if self.lost:
            return Place(self.first - 1, BatchName.parse(self.lost))
        return just_before(self.first)

    def missing(self, name_of: Callable[[str], str] = str) -> list[str]:
        """Lines that describe what is missing. `name_of` gives a site's name for its cluster ID."""
        first, last = self.offset + 1, self.first - 1
        lines = [f"offsets {first} to {last} of the log, after {self.after}"]
        for gone in self.gone:
            sequences = f"{gone.first}" if gone.first == gone.last else f"{gone.first}-{gone.last}"
            lines.append(
                f"{name_of(gone.origin)}, run {gone.run}, {gone.exchange}, sequences {sequences}: "
                f"{gone.batches} batches, {gone.messages} messages"
            )
        if not self.is_all_named:
            lines.append("more than that is gone, or may be: the node does not remember the names")
        return lines

    def accepted_row(self, by: str, at: str, now_ms: int) -> LedgerRow:
        """Ledger row of a person's decision that the stage go on."""
        return LedgerRow(
            stage=self.stage,
            recorded_ms=now_ms,
            event=Event.GAP_ACCEPTED,
            origin=self.origin,
            exchange=self.exchange,
            lane=self.lane,
            neighbour=self.neighbour,
            position=self.after,
            reason=f"accepted by {by} at {at}: {'; '.join(self.missing())}",
        )

    def as_json(self) -> dict[str, Any]:
        """Fields for JSON; `from_json` reads them."""
        return {
            **asdict(self),
            "stage": self.stage.name.lower(),
            "id": self.id,
            "messages": self.messages,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> OpenGap:
        """Read the fields of `as_json`. Raises KeyError, TypeError, ValueError for other fields."""
        record = {"lost": "", **record}  # which earlier versions did not write
        fields = {key: record[key] for key in cls.__dataclass_fields__}
        return cls(
            **{
                **fields,
                "stage": Stage[record["stage"].upper()],
                "gone": tuple(GoneRange(**gone) for gone in record["gone"]),
            }
        )


class Accepted(NamedTuple):
    """A gap accepted by a person, whose name is `by`; `at` is a time in words."""

    gap: OpenGap
    by: str
    at: str


def read_gaps(text: str) -> list[OpenGap]:
    """Gaps in a site's file. Raises ValueError if the file is damaged."""
    try:
        record = json.loads(text)
        if record["format"] != 1:
            raise ValueError(f"format {record['format']!r} is not known")
        return [OpenGap.from_json(gap) for gap in record["gaps"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"damaged: {error!r}") from error


def write_gaps(gaps: Iterable[OpenGap]) -> str:
    """Text of the file that `read_gaps` reads."""
    return json.dumps({"format": 1, "gaps": [gap.as_json() for gap in gaps]}, indent=1)


def _lost_range(name: BatchName) -> GoneRange:
    series, sequence = name
    run = series.incarnation.hex()
    return GoneRange(series.origin, run, series.exchange, sequence, sequence, 1, 1)


def _gone(
    gap: LogGap, names: Iterable[Seen], is_needed: Callable[[BatchName], bool]
) -> tuple[tuple[GoneRange, ...], bool]:
    found: dict[tuple[str, str, str], GoneRange] = {}
    before = 0
    reaches_back = False
    is_first = True
    for seen in names:
        if is_first:
            # The first name's count includes all names before.
            reaches_back = seen.offset <= gap.place.offset or seen.offset == 0
        count = 0 if is_first and seen.offset else seen.messages - before
        before, is_first = seen.messages, False
        if seen.offset >= gap.first:
            break
        series, sequence = seen.name
        if seen.offset <= gap.place.offset or not series.exchange or not is_needed(seen.name):
            continue
        key = (series.origin, series.incarnation.hex(), series.exchange)
        one = found.get(key)
        found[key] = GoneRange(
            *key,
            min(sequence, one.first) if one else sequence,
            max(sequence, one.last) if one else sequence,
            (one.batches if one else 0) + 1,
            (one.messages if one else 0) + count,
        )
    return tuple(found.values()), reaches_back
