"""Errors of the bulk path, as one tree.

::

    BulkAmqpError
    ├── Misuse                    our own code asked for what cannot be; a bug to mend, not to retry
    │   ├── AddressInvalid        an AMQP URI that does not parse
    │   ├── AckOutOfOrder         a delivery tag that is settled already, or was never delivered
    │   └── MessageUnsendable     a name over 255 bytes, or properties larger than a frame
    ├── MalformedProperties       content-header bytes that are not AMQP 0-9-1 properties
    ├── ConnectionFailed          no open connection came of it; retry with backoff
    │   └── AuthenticationFailed  wrong credentials, or no right to the virtual host; do not hammer
    ├── ConnectionClosed          was open, is closed; reconnect, what was in flight is unknown
    │   ├── ConnectionLost        without a close handshake: reset, end of file, killed broker
    │   ├── PeerSilent            nothing heard for two heartbeats
    │   ├── UnexpectedFrame       the peer broke the protocol
    │   └── CallbackFailed        a callback of ours raised; its exception is ``__cause__``
    ├── ChannelClosed             the broker closed one channel (404, 403, 405, 406...)
    └── ConsumerCancelled         the broker ended a consumer: its queue is gone or has failed over

``ConnectionFailed`` and ``ConnectionClosed`` carry the broker's ``code`` and ``text`` when it gave
any. No text here ever contains a password.
"""

from __future__ import annotations

from dataclasses import dataclass


class BulkAmqpError(Exception):
    """Root of all errors that this package raises."""


class Misuse(BulkAmqpError):
    """The caller broke a rule of the interface: a bug to mend, a retry does not help."""


class AddressInvalid(Misuse):
    """An AMQP URI cannot be understood. Never shows the URI, which may hold a password."""


@dataclass(eq=False)
class AckOutOfOrder(Misuse):
    """``tag`` was settled already (all up to ``settled_up_to`` are) or never delivered.

    The broker would answer PRECONDITION_FAILED and close the channel: settle tags in order.
    """

    tag: int
    settled_up_to: int
    delivered_up_to: int

    def __str__(self) -> str:
        return (
            f"delivery tag {self.tag} cannot be settled: tags up to {self.settled_up_to} are"
            f" settled, tags up to {self.delivered_up_to} were delivered; settle in order"
        )


@dataclass(eq=False)
class MessageUnsendable(Misuse):
    """Message ``index`` of a batch can never be sent (``reason``). None of its batch was sent."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"message {self.index} of the batch cannot be sent: {self.reason}"


@dataclass(eq=False)
class MalformedProperties(BulkAmqpError):
    """Bytes are not AMQP 0-9-1 content properties. Quarantine the message."""

    reason: str
    offset: int

    def __str__(self) -> str:
        return f"malformed properties at byte {self.offset}: {self.reason}"


@dataclass(eq=False)
class ConnectionFailed(BulkAmqpError):
    """No open connection came of an attempt; try again with backoff.

    ``code`` is AMQP's reply code, 0 if the broker gave none.
    """

    reason: str
    code: int = 0

    def __str__(self) -> str:
        return f"{self.reason} ({self.code})" if self.code else self.reason


class AuthenticationFailed(ConnectionFailed):
    """The broker refused the user, the password or the virtual host: correct them."""


@dataclass(eq=False)
class ConnectionClosed(BulkAmqpError):
    """The connection is closed. Reconnect; unconfirmed publishes have an unknown outcome.

    ``code`` is AMQP's reply code: 200 for a close that we requested, 320 for a broker that stops or
    an operator's close, 0 where nobody gave any.
    """

    code: int
    text: str

    def __str__(self) -> str:
        return f"connection closed: {self.text} ({self.code})"


class ConnectionLost(ConnectionClosed):
    """The connection broke without a close handshake: reset, end of file, killed broker."""


class PeerSilent(ConnectionClosed):
    """Silence of two heartbeats: half-open, or the peer hangs. Reconnect."""


class UnexpectedFrame(ConnectionClosed):
    """The peer broke the rules of AMQP 0-9-1. Reconnect; report the error if it recurs."""


class CallbackFailed(ConnectionClosed):
    """A callback raised; closed so that nothing is skipped. Mend the cause in ``__cause__``."""


@dataclass(eq=False)
class ChannelClosed(BulkAmqpError):
    """The channel is closed, the connection is not. Open another channel once mended.

    403 no permission; 404 no such exchange or queue; 405 locked by another connection; 406
    arguments differ, or a tag or ``user_id`` was refused; 200 closed by us.
    """

    code: int
    text: str

    def __str__(self) -> str:
        return f"channel closed: {self.text} ({self.code})"


@dataclass(eq=False)
class ConsumerCancelled(BulkAmqpError):
    """The broker ended the consumer of ``queue``: deleted, or its leader moved. Consume again."""

    queue: str
    consumer_tag: str

    def __str__(self) -> str:
        return f"the broker cancelled consumer {self.consumer_tag} of queue {self.queue!r}"
