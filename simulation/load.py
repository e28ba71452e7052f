"""Load of a simulated mesh: messages to publish, and the reading of arrived ones."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

from relay.batches.mesh_headers import PATH_HEADER, REDELIVERED_HEADER
from relay.bulk_amqp.content_header import (
    DELIVERY_MODE,
    MESSAGE_ID,
    NONE_PRESENT,
    header,
    rewrite,
    text,
)
from relay.delivery.local_exchange import Outgoing
from simulation.invariants import Arrived

SMALL = (8, 400)
"""Size of most bodies in bytes: from, to."""
BIG = (300_000, 1_800_000)
"""Size of big bodies, several fragments each: from, to."""
ANONYMOUS_ONE_IN = 3
"""Share of messages without an identity of their own, for which the packer makes one."""
REPEATED_ONE_IN = 8
"""Share of identified messages published once more, behind the next, by an application in doubt."""
TO_ANOTHER_ONE_IN = 8
"""Share of identified messages also published to a second exchange, where they are other messages.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Amount to publish."""

    messages: int = 100
    """Messages at each site."""
    for_s: float = 60.0
    """Time, in seconds, within which all are published."""
    big_one_in: int = 150
    first: int | None = None
    """Number of the first messages that are published, at their usual times; None: all."""


KEYS = 7
"""Number of routing keys of the messages for exchanges with partitions."""


def key_of(number: int) -> bytes:
    """Return the routing key of a message for an exchange with partitions."""
    return b"key%d" % (number % KEYS)


def message(origin: str, number: int, big_one_in: int, chance: random.Random) -> Outgoing:
    """Make an application's next message; its body begins with origin and number."""
    changes: dict[int, bytes | int | None] = {DELIVERY_MODE: 2}
    if chance.randrange(ANONYMOUS_ONE_IN):
        changes[MESSAGE_ID] = str(uuid.UUID(int=chance.getrandbits(128), version=4)).encode()
    size = chance.randint(*(SMALL if chance.randrange(big_one_in) else BIG))
    label = f"{origin}/{number} ".encode()
    # Noise does not compress: a big message stays big in the log.
    return Outgoing(b"key", rewrite(NONE_PRESENT, changes), label + chance.randbytes(size))


def is_repeated(message: Outgoing, chance: random.Random) -> bool:
    """Draw whether the application publishes a message once more."""
    drawn = chance.randrange(REPEATED_ONE_IN)
    return not drawn and has_identity(message)


def is_for_another(message: Outgoing, chance: random.Random) -> bool:
    """Draw whether the application publishes a message to a second exchange as well."""
    drawn = chance.randrange(TO_ANOTHER_ONE_IN)
    return not drawn and has_identity(message)


def has_identity(message: Outgoing) -> bool:
    """True if the application has given the message an identity."""
    return text(message.properties, MESSAGE_ID) is not None


def origin_and_number(body: bytes) -> tuple[str, int]:
    """Read origin and number from a message's body."""
    origin, number = body.split(b" ", 1)[0].decode().split("/")
    return origin, int(number)


def arrived(message: Outgoing) -> Arrived:
    """Read a message as an application does."""
    origin, number = origin_and_number(message.body)
    path = header(message.properties, PATH_HEADER)
    return Arrived(
        origin,
        number,
        header(message.properties, REDELIVERED_HEADER) is not None,
        tuple(path[5:].decode().split(",")) if path else (),
        message.body,
    )
