"""The level *fingerprint*: sums first by minute, then by batch; opened is what differs then.

What differs may be explained by what adds up: a message that one batch lacks came by another.
So the identities of what did not simply arrive are looked for in all that was packed, and where
they stand is opened as well. A day on which all arrived is spared that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_audit.compare import batches, entries
from spark_audit.compare.blocks import judged_blocks
from spark_audit.compare.digest import BLOCK
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import Compared, Reading
from spark_audit.compare.whole_batches import compared_whole

_TO_EXPLAIN = "leaked > 0 OR conflicts > 1 OR verdict NOT IN ('delivered', 'late')"


def by_blocks(
    reading: Reading, expected: Any, say: Callable[[str], None], *, open_all: bool
) -> Compared:
    """Of the digest, and of the rows of blocks that differ. `expected`: who is to get what."""
    premises = reading.premises
    keep = premises.keep
    blocks = keep(judged_blocks(premises, reading.table, expected))
    odd_blocks = keep(blocks.where("true" if open_all else "NOT is_whole").select(*BLOCK))
    if not odd_blocks.head(1):
        return Compared(reading.nothing_opened(), _in_whole_blocks(blocks))
    none = premises.frame([], {"series": "long", "sequence": "long"})
    whole, odd, messages = _opened(reading, expected, odd_blocks, none, say, open_all=open_all)
    known_as = keep(entries.known_as_of(messages.where(_TO_EXPLAIN), premises.by_origin).distinct())
    if known_as.head(1):
        say("looking for where else these messages were")
        packed = reading.packed()
        named = reading.with_identities(packed, known_as)
        elsewhere = keep(named.join(odd, [*NAME], "left_anti"))
        if elsewhere.head(1):
            where = batches.blocks_of(packed.join(elsewhere, [*NAME], "left_semi"))
            odd_blocks = keep(odd_blocks.unionByName(where).distinct())
            whole, odd, messages = _opened(
                reading, expected, odd_blocks, elsewhere, say, open_all=open_all
            )
    in_whole_batches = whole.where("is_whole").join(odd, [*NAME], "left_anti")
    return Compared(
        messages,
        _in_whole_blocks(blocks.join(odd_blocks, [*BLOCK], "left_anti")).unionByName(
            in_whole_batches.selectExpr(
                *("origin", "expected", "exchange", "sent.first_ms AS first_ms"),
                "CAST(sent.count AS BIGINT) AS count",
            )
        ),
    )


def _in_whole_blocks(blocks: Any) -> Any:
    """As `Compared.whole`."""
    return blocks.where("is_whole").selectExpr(
        "origin", "expected", "exchange", "first_ms", "sent[0].counted AS count"
    )


def _opened(
    reading: Reading,
    expected: Any,
    blocks: Any,
    besides: Any,
    say: Callable[[str], None],
    *,
    open_all: bool,
) -> tuple[Any, Any, Any]:
    """The batches of these blocks compared, those that were opened (what differs, and `besides`),
    and their messages.
    """
    premises = reading.premises
    keep = premises.keep
    say("opening what does not add up")
    files = reading.files_of(blocks)
    packed = batches.of_blocks(reading.packed(files), blocks)
    settled = batches.of_blocks(reading.settled(files), blocks)
    whole = keep(compared_whole(premises, reading.source, packed, settled, expected))
    # Of what differs only: what adds up by sums is not looked at for its order.
    overtaken = keep(reading.overtaken(settled))
    differs = "true" if open_all else f"NOT is_whole AND {premises.touches_period()}"
    odd = keep(whole.where(differs).select(*NAME).unionByName(besides).distinct())
    odd = reading.few(odd)
    return whole, odd, reading.opened(whole, odd, overtaken)
