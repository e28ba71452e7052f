"""Mistakes with the partitions of exchanges, found in worlds whose exchanges have some."""

from __future__ import annotations

from tests.simulation.mistake import Mistake

OF_PARTITIONS = "--partitions 3 --slots 3 --faults none --messages 20 --seconds 5"
UNDER_KILLS = "--partitions 3 --faults kill --every 1 --messages 60 --seconds 20"
OVER_LANES = "--partitions 3 --max-rate 4Mbit/s --faults none --messages 20 --seconds 5"

PARTITION_MISTAKES = (
    Mistake(
        "partitions packed in the exchange's slot",
        "relay/node/parts.py",
        """\
                if slots.of(exchange.name, partition_of(exchange.lane)) == self.slot
""",
        """\
                if slots.of(exchange.name) == self.slot
""",
        OF_PARTITIONS,
        1,
        "I2 at",
    ),
    Mistake(
        "partitions sent to the exchange's slot",
        "relay/links/forwarding.py",
        """\
        return self.slots.of(series.exchange, partition_of(series.lane)) == self.slot
""",
        """\
        return self.slots.of(series.exchange) == self.slot
""",
        OF_PARTITIONS,
        1,
        "I2 at",
    ),
    Mistake(
        "partitions of an exchange taken for one as they come back",
        "relay/batches/batch.py",
        """\
        return self.flow.partition
""",
        """\
        return self.exchange
""",
        UNDER_KILLS,
        1,
        "I2 at",
    ),
    Mistake(
        "lane without its partitions",
        "relay/links/forwarding.py",
        """\
        return LaneShare(_numbers_in_use(mesh, link.lane))
""",
        """\
        return LaneShare(frozenset({lane_number(link.lane)}))
""",
        OVER_LANES,
        1,
        "after 900 s",
    ),
)
