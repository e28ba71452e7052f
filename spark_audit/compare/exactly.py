"""The level *exact*: every batch by hashes of its identities, and each identity where it stands.

A batch that does not add up is opened, and so is one that shares an identity with another place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_audit.compare import entries
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import Compared, Reading
from spark_audit.compare.whole_batches import compared_whole

IDENTITIES_AT_ONCE = 200_000
"""What a task looks for repeats in: a table of so many stays small beside a gigabyte."""


def by_batches(
    reading: Reading, expected: Any, say: Callable[[str], None], *, open_all: bool
) -> Compared:
    """Of all files. `expected`: who is to get what."""
    premises = reading.premises
    keep = premises.keep
    packed, settled = reading.packed(), reading.settled()
    whole = keep(compared_whole(premises, reading.source, packed, settled, expected))
    overtaken = keep(reading.overtaken(settled))
    odd = whole.where(f"NOT is_whole AND {premises.touches_period()}").select(*NAME)
    odd = reading.few(keep(odd.unionByName(overtaken.select(*NAME)).distinct()))
    say("looking for identities that came twice")
    known_as = keep(
        entries.repeated_identities(
            packed,
            settled.join(odd, [*NAME], "left_semi"),
            premises.by_origin,
            reading.messages_packed() // IDENTITIES_AT_ONCE + 1,
        )
    )
    if known_as.head(1):
        twice = reading.with_identities(packed, known_as)
        odd = reading.few(keep(odd.unionByName(twice).distinct()))
    if open_all:
        odd = reading.few(keep(whole.select(*NAME)))
    say("opening what does not add up")
    messages = reading.opened(whole, odd, overtaken)
    rest = whole.where("is_whole").join(odd, [*NAME], "left_anti")
    return Compared(
        messages,
        rest.selectExpr(
            *("origin", "expected", "exchange", "sent.first_ms AS first_ms"),
            "CAST(sent.count AS BIGINT) AS count",
        ),
        whole,
    )
