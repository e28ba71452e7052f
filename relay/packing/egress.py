"""Seam to a site's egress queues: take messages, acknowledge them in order.

An object is one connection, which holds the packer's lock; once `closed`, for good. Twins:
`rabbit_egress.RabbitEgress` and `memory_egress.MemoryEgress`; the same contract suite runs over
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

GOODBYE_S = 1.0
"""Time for the answer to a close: a slower broker node hangs, and reconnecting waits."""
PATIENT_GOODBYE_S = 5.0
"""Time for the answer at the end of a packer that has acknowledged all that was taken: what a busy
broker has not read by then comes again, in doubt."""

EgressMessage: TypeAlias = tuple[int, bool, str, bytes, bytes, bytes]
"""(tag, redelivered, exchange published to, routing key, raw properties, body).

Tags grow by one from 1 in each consumption. The exchange published to may differ from the exchange
to which the egress queue is bound; nothing follows from the difference. `properties` are the
content header's bytes from the property flags on. A plain tuple, as the bulk channel makes one for
every message."""


class EgressError(Exception):
    """Root of the errors that egress raises.

    EgressError
    +- EgressClosed     the connection is gone: everything unacknowledged comes back
    +- PackerLockHeld   another node packs at this site
    +- QueueMissing     no such egress queue: `isthmus apply` declares it
    +- EgressRefused    the broker refused: rights, arguments, credentials
    """


class EgressClosed(EgressError):
    """The connection is gone or could not be made; everything unacknowledged comes back."""


class PackerLockHeld(EgressError):
    """Another node holds the packer's lock: stop the other node, or wait for its end."""

    def __init__(self, lock: str) -> None:
        super().__init__(f"another node of this site holds {lock!r}: stop it, or wait for its end")
        self.lock = lock


class QueueMissing(EgressError):
    """The egress queue is not declared, which `isthmus apply` does, or `is_away`: declared on a
    broker node that does not run.
    """

    def __init__(self, queue: str, *, is_away: bool = False) -> None:
        super().__init__(
            f"egress queue {queue!r} is on a broker node that is away: start that node"
            if is_away
            else f"egress queue {queue!r} is not there: `isthmus apply` declares it"
        )
        self.queue = queue
        self.is_away = is_away


class EgressRefused(EgressError):
    """The broker refused the request: the reason shows what to mend."""


class EgressQueue(Protocol):
    """Queue being consumed."""

    def ack(self, tag: int) -> None:
        """Acknowledge every message up to and with `tag`; tags only grow. Raises EgressClosed."""
        ...


class Egress(Protocol):
    """Connection to a site's egress queues."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Future with the reason, done once the connection is gone."""
        ...

    @property
    def blocked(self) -> bool:
        """True while the broker takes no publishes (an alarm): egress's messages wait."""
        ...

    @property
    def returns_in_order(self) -> bool:
        """True if messages that a connection left unacknowledged come again before all others and
        in their former order, as at a broker of a single node. In a cluster a queue may keep the
        messages in hand of a consumer at a lost node, and serve the next consumer meanwhile.
        """
        ...

    @property
    def bytes_heard(self) -> int:
        """Bytes received so far, heartbeats included: a sign of life of the lock's keeper."""
        ...

    async def take_lock(self) -> None:
        """Take the packer's lock for the life of this connection.

        Raises PackerLockHeld, EgressClosed, EgressRefused. A former holder's last bytes may still
        be on their way inside the broker: wait before acting.
        """
        ...

    async def consume(
        self,
        queue: str,
        on_messages: Callable[[Sequence[EgressMessage]], None],
        on_ended: Callable[[str], None],
    ) -> EgressQueue:
        """Hand out the queue's messages in order, at most 2000 unacknowledged.

        `on_messages` is called with all messages of one read, also before this returns; `on_ended`
        once, with the reason, when the broker ended the consumption (queue deleted, leader moved,
        connection gone). Messages handed out again after a connection's end are flagged
        `redelivered`, in the order that `returns_in_order` promises. Raises QueueMissing,
        EgressClosed, EgressRefused.
        """
        ...

    def pause(self) -> None:
        """Take nothing more from the broker until `resume`; a few messages may still come."""
        ...

    def resume(self) -> None:
        """Take messages again."""
        ...

    async def close(self, *, patient: bool = False) -> None:
        """Close in order: acknowledgements sent before count, if the broker answers within
        `GOODBYE_S`, with `patient` within `PATIENT_GOODBYE_S`. Idempotent.
        """
        ...
