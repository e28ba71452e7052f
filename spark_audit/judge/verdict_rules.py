"""Verdicts on a message at a site, each a named condition over the columns of `by_message`.

Import inside functions only: pyspark is installed for audits alone. Every rule is an expression,
which Spark compiles like one SQL CASE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from relay.ledger.rows import Outcome
from spark_audit.judge.verdicts import MESSAGE, MessageVerdict

Rule = tuple[MessageVerdict, Callable[[], Column]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteKnowledge:
    """Boolean columns of gaps in the ledgers, by a row's site (`at`) and origin."""

    incomplete_at: Column
    """Rows of the site's deliverer are missing."""
    renewed_at: Column
    """The site's state folder was made anew: positions since then are unknown."""
    begun_at: Column
    """The site delivered before the rows begin: a duplicate may repeat an older message."""
    departed_at: Column
    """The site has left the mesh: messages that it had not reached will not come."""
    incomplete_from: Column
    """Rows of the origin's packer are missing."""


def judged(messages: DataFrame, knowledge: SiteKnowledge) -> DataFrame:
    """Return rows of `by_message` with verdict, reason and counts of repeats (columns `JUDGED`)."""
    all_origins = Window.partitionBy(*MESSAGE)
    arrived = F.col("plain") + F.col("flagged") + F.col("conflicts")
    return (
        messages.withColumn("arrived_in_all", F.sum(arrived).over(all_origins))
        .withColumn("known_in_all", F.sum(F.col("own") + F.col("unrouted")).over(all_origins))
        .withColumn("first_in_all", F.min("first").over(all_origins))
        .withColumn("incomplete_at", knowledge.incomplete_at)
        .withColumn("renewed_at", knowledge.renewed_at)
        .withColumn("begun_at", knowledge.begun_at)
        .withColumn("incomplete_from", knowledge.incomplete_from)
        .withColumn("departed_at", knowledge.departed_at)
        .withColumn("verdict", verdict())
        .where("verdict IS NOT NULL")
        .withColumn("is_in_gap", F.expr("coalesce(sent > 0 AND published_ms < gap_ms, false)"))
        .withColumn("leaked", leaked())
        .withColumn("redelivered", F.col("flagged"))
        .withColumn("is_partial", F.col("partial") > 0)
        .withColumn("why", why())
    )


def _any(*counts: str) -> Column:
    """True if one of these counts is above zero."""
    total = F.col(counts[0])
    for name in counts[1:]:
        total = total + F.col(name)
    return total > 0


def is_sent() -> Column:
    """True if the message was to come to the site at least once."""
    return _any("sent")


def has_arrived() -> Column:
    """True if the site delivered the message, flagged or not."""
    return _any("plain", "flagged", "conflicts")


def is_refused_as_duplicate() -> Column:
    """True if the barrier suppressed a copy that no repair had brought. A refused repair is no
    evidence of the message's own outcome.
    """
    return F.col("duplicates") > F.col("repairs_refused")


# -- messages that were to come to the site, in order of precedence ------------------------------


def late() -> Column:
    """True if delivered over the exchange's deadline, and by no repair."""
    took_ms = F.col("delivered_ms") - F.col("published_ms")
    return has_arrived() & (took_ms > F.col("deadline_ms")) & (F.col("repaired") == 0)


def delivered() -> Column:
    """True if delivered, within the deadline or by a repair."""
    return has_arrived()


def unrouted() -> Column:
    """True if the site's broker had no queue for the message."""
    return _any("unrouted")


def dead_lettered() -> Column:
    """True if refused too often at the site, and dead-lettered."""
    return _any("dead")


def quarantined() -> Column:
    """True if the message is in the site's quarantine, alone."""
    return _any("quarantined")


def expired() -> Column:
    """True if the message's own expiration had passed when its turn came."""
    return _any("expired")


def suppressed() -> Column:
    """True if not delivered for this origin, since the site has the message from another origin, or
    knew it (as its own, or unrouted) when the barrier suppressed the copy.
    """
    return _any("arrived_in_all") | (is_refused_as_duplicate() & _any("known_in_all"))


def set_aside() -> Column:
    """True if in quarantine with its batch, and every copy's batch is void or set aside."""
    return ~is_refused_as_duplicate() & (F.col("live") == 0) & _any("aside")


def void() -> Column:
    """True if every copy is in a batch that does not count."""
    return ~is_refused_as_duplicate() & (F.col("live") == 0)


def unproven() -> Column:
    """True if missing rows might explain the message: a delivery that the barrier remembered, the
    site's own row, the verdict on a disputed batch, or the remaining pieces.
    """
    of_duplicate = F.col("incomplete_at") | F.col("renewed_at") | F.col("begun_at")
    of_other = (
        F.col("incomplete_at") | _any("disputed") | (_any("partial") & F.col("incomplete_from"))
    )
    return F.when(is_refused_as_duplicate(), of_duplicate).otherwise(of_other)


def lost() -> Column:
    """True if suppressed as a duplicate without a delivery, or passed: the site is done with later
    batches of its origin, or took the batch for void against most others.
    """
    return is_refused_as_duplicate() | _any("passed", "refused")


def unproven_after_renewal() -> Column:
    """True if the site's state folder was made anew, whose earlier rows may be lost."""
    return F.col("renewed_at")


def departed() -> Column:
    """True if the site has left the mesh without passing the message."""
    return F.col("departed_at")


def pending() -> Column:
    """True always: the last rule, for messages still on their way."""
    return F.lit(True)


SENT_RULES: tuple[Rule, ...] = (
    (MessageVerdict.LATE, late),
    (MessageVerdict.DELIVERED, delivered),
    (MessageVerdict.UNROUTED, unrouted),
    (MessageVerdict.DEAD_LETTERED, dead_lettered),
    (MessageVerdict.QUARANTINED, quarantined),
    (MessageVerdict.EXPIRED, expired),
    (MessageVerdict.SUPPRESSED, suppressed),
    (MessageVerdict.QUARANTINED, set_aside),
    (MessageVerdict.VOID, void),
    (MessageVerdict.UNPROVEN, unproven),
    (MessageVerdict.LOST, lost),
    (MessageVerdict.UNPROVEN, unproven_after_renewal),
    (MessageVerdict.DEPARTED, departed),
    (MessageVerdict.PENDING, pending),
)
"""Rules for messages that were to come to the site; the first that holds decides."""


# -- messages that were not ----------------------------------------------------------------------


def unproven_origin() -> Column:
    """True if delivered, and rows of the origin are missing that might show the packing."""
    return _any("from_nowhere") & F.col("incomplete_from")


def unexpected() -> Column:
    """True always: delivered at a site that was not to have the message."""
    return F.lit(True)


UNSENT_RULES: tuple[Rule, ...] = (
    (MessageVerdict.UNPROVEN, unproven_origin),
    (MessageVerdict.UNEXPECTED, unexpected),
)
"""Rules for deliveries at sites that expect nothing; the first that holds decides."""


def verdict() -> Column:
    """Verdict on each row, or null where nothing was to come and nothing came."""
    return F.when(is_sent(), _decided(SENT_RULES)).when(has_arrived(), _decided(UNSENT_RULES))


def _decided(rules: Sequence[Rule]) -> Column:
    return _first_of([(holds(), F.lit(name.value)) for name, holds in rules])


def _first_of(cases: Sequence[tuple[Column, Column]]) -> Column:
    """Value of the first condition that is true, or null."""
    condition, value = cases[0]
    found = F.when(condition, value)
    for condition, value in cases[1:]:
        found = found.when(condition, value)
    return found


def leaked() -> Column:
    """Number of deliveries beyond the first one that were not marked as repeats."""
    first = F.col("first_in_all")
    is_first = (
        F.col("first").eqNullSafe(first)
        & (first["outcome"] == int(Outcome.DELIVERED))
        & ~first["is_flagged"]
    )
    return F.greatest(F.col("plain") - F.when(is_first, 1).otherwise(0), F.lit(0))


# -- reasons -------------------------------------------------------------------------------------

_IN_GAP = "the site had not delivered it when its log dropped it (retention, or a full log)"


def why_lost() -> Column:
    """Reason of `lost`, as people read it."""
    return (
        F.when(
            is_refused_as_duplicate(),
            "suppressed as a duplicate, and never delivered at this site",
        )
        .when(F.col("is_in_gap"), _IN_GAP)
        .when(_any("refused"), "the site took its batch for void, and most others did not")
        .otherwise("the site is done with later batches of its origin and never had this message")
    )


def why_unproven() -> Column:
    """Reason of `unproven`: which rows are missing."""
    return (
        F.when(F.col("is_in_gap"), _IN_GAP)
        .when(_any("disputed"), "the site took its batch for void, and another one did not")
        .when(
            is_refused_as_duplicate(),
            "suppressed as a duplicate of what the rows that were read of this site lack",
        )
        .when(
            _any("partial") & F.col("incomplete_from"),
            "packed in part, and rows of its origin are missing that might tell of the rest",
        )
        .when(
            F.col("sent") == 0,
            "delivered, and rows of its origin are missing that might tell of it",
        )
        .otherwise("no row of it, and rows of this site are missing that might tell of it")
    )


def why_unexpected() -> Column:
    return (
        F.when(F.col("at") == F.col("origin"), "delivered back at its origin")
        .when(_any("from_nowhere"), "delivered, and its origin never packed it")
        .otherwise("delivered at a site that was not to have it")
    )


def why_late() -> Column:
    """Reason of `late`: the whole seconds between publishing and delivery."""
    return F.expr("concat('took ', CAST((delivered_ms - published_ms) DIV 1000 AS STRING), ' s')")


def why() -> Column:
    """Reason of the verdict, or null where the verdict needs none. Needs `verdict`, `is_in_gap`."""
    reasons = (
        (MessageVerdict.LOST, why_lost),
        (MessageVerdict.UNPROVEN, why_unproven),
        (MessageVerdict.UNEXPECTED, why_unexpected),
        (MessageVerdict.LATE, why_late),
    )
    return _first_of([(F.col("verdict") == name.value, reason()) for name, reason in reasons])
