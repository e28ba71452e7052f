"""Applications of a simulated mesh: what they publish, and how what arrives is read."""

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
"""Bytes of most bodies: from, to."""
BIG = (300_000, 1_800_000)
"""Of the others: several fragments."""
ANONYMOUS_ONE_IN = 3
"""Messages without an identity of their own: the packer makes them one."""
REPEATED_ONE_IN = 8
"""Of those that have one: published once more, behind the next, by an application in doubt."""
TO_ANOTHER_ONE_IN = 8
"""Of those that have one: published to a second exchange as well, where they are other messages."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much is published."""

    messages: int = 100
    """At each site."""
    for_s: float = 60.0
    """All of them within this time, in seconds."""
    big_one_in: int = 150
    first: int | None = None
    """Only so many of them are published, when they would be anyway; None: all."""


def message(origin: str, number: int, big_one_in: int, chance: random.Random) -> Outgoing:
    """The application's next message; its body tells whose and which it is."""
    changes: dict[int, bytes | int | None] = {DELIVERY_MODE: 2}
    if chance.randrange(ANONYMOUS_ONE_IN):
        changes[MESSAGE_ID] = str(uuid.UUID(int=chance.getrandbits(128), version=4)).encode()
    size = chance.randint(*(SMALL if chance.randrange(big_one_in) else BIG))
    said = f"{origin}/{number} ".encode()
    # Noise does not compress: what is big stays big in the log.
    return Outgoing(b"key", rewrite(NONE_PRESENT, changes), said + chance.randbytes(size))


def is_repeated(message: Outgoing, chance: random.Random) -> bool:
    """Whether the application publishes it once more."""
    drawn = chance.randrange(REPEATED_ONE_IN)
    return not drawn and _has_identity(message)


def is_for_another(message: Outgoing, chance: random.Random) -> bool:
    """Whether the application publishes it to a second exchange as well."""
    drawn = chance.randrange(TO_ANOTHER_ONE_IN)
    return not drawn and _has_identity(message)


def _has_identity(message: Outgoing) -> bool:
    return text(message.properties, MESSAGE_ID) is not None


def which_of(body: bytes) -> tuple[str, int]:
    """Origin and number of the message with this body."""
    origin, number = body.split(b" ", 1)[0].decode().split("/")
    return origin, int(number)


def arrived(message: Outgoing) -> Arrived:
    """A message as an application reads it."""
    origin, number = which_of(message.body)
    path = header(message.properties, PATH_HEADER)
    return Arrived(
        origin,
        number,
        header(message.properties, REDELIVERED_HEADER) is not None,
        tuple(path[5:].decode().split(",")) if path else (),
        message.body,
    )
