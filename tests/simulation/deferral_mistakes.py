"""Mistakes in the deferral of refused messages, found in worlds with `order: best_effort`, and with
messages in doubt.
"""

from __future__ import annotations

from tests.simulation.mistake import Mistake

OF_BEST_EFFORT = "--best-effort 2 --faults partly-full,kill --every 1 --messages 60 --seconds 20"
OF_TWO_SITES = "--faults failover,partly-full,confirms,kill --every 0.5 --messages 60 --seconds 20"

DEFERRAL_MISTAKES = (
    Mistake(
        "claim of a deferred message ended",
        "relay/delivery/deferred_batches.py",
        """\
            chunk.kept[number] = claim
""",
        """\
            self._context.barrier.release(claim)
""",
        OF_BEST_EFFORT,
        3,
        "I2 at",
    ),
    Mistake(
        "claim of a deferred message not made again",
        "relay/delivery/deferred_batches.py",
        """\
                claim = self._claim(read, number)
""",
        """\
                claim = None
""",
        OF_BEST_EFFORT,
        31,
        "I2 at",
    ),
    Mistake(
        "batch settled with a deferred message",
        "relay/delivery/flow_delivery.py",
        """\
            if not self.deferred.passed(name):
""",
        """\
            self.deferred.passed(name)
            if True:
""",
        OF_BEST_EFFORT,
        1,
        "I8: the deliverer",
    ),
    Mistake(
        "deferred messages forgotten by a restart",
        "relay/delivery/deferred_batches.py",
        """\
        return self._unmet.pop(name, ()) if self._unmet else ()
""",
        """\
        return ()
""",
        OF_BEST_EFFORT,
        2,
        "I8: the deliverer",
    ),
    Mistake(
        "deferred message sent again unflagged",
        "relay/delivery/redelivery.py",
        """\
                chunk.flagged.add(n)
""",
        "",
        OF_BEST_EFFORT,
        1,
        "I2 at",
    ),
    Mistake(
        "copy judged before what is in doubt",
        "relay/delivery/deliverer.py",
        """\
        await self._claim_doubts()
""",
        "",
        OF_TWO_SITES,
        2,
        "I2 at",
    ),
    Mistake(
        "copy judged before a deferred message",
        "relay/delivery/doubts.py",
        """\
            self._claim(name, one, deferred.get(name, ()), is_kept=True)
""",
        "",
        f"--best-effort 2 {OF_TWO_SITES}",
        37,
        "I2 at",
    ),
)
