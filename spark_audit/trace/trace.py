"""Looks for one message in the ledgers of all sites.

Copies of a message may stand in several batches, of several origins even: they are told together,
since barriers know them as one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

from spark_audit.trace.life import Life
from spark_audit.trace.search import LedgerSearch
from spark_audit.trace.told import Trace, TracedMessage


def trace(search: LedgerSearch, identities: Collection[bytes], day: date | None = None) -> Trace:
    """All that the ledgers tell of messages with one of these identities. `day`: about when it was
    published, which spares the search the other days' files.
    """
    dates = (_day(day, -1), _day(day, 1)) if day else ("", "9")
    packed = list(search.having("packed", identities, dates))
    # Links and deliverers come later; a clock may be a day behind, no more.
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
    told = sorted({file.date for file in files})
    return Trace(
        messages,
        files=len(search.searched),
        sites=search.sites,
        dates=(told[0], told[-1]) if told else None,
        bad=search.bad | dict.fromkeys(search.revisions.unreadable, "not a mesh document"),
    )


def _day(day: date, more: int) -> str:
    return (day + timedelta(days=more)).isoformat()
