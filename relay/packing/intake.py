"""Intake of egress messages: ours coming round, or an entry for the log. Pure.

In transparent mode the deliverer's messages come round through the site's own egress. They are
recognised by `user_id` (the relay's; the broker refuses forgeries) *and* `x-mesh-exchange` (this
exchange: bindings may lead from one to another) *and* the lack of any `x-death` but the one with
which they were delivered. A message dead-lettered here, on purpose, into a mesh exchange is wanted
elsewhere; a message that died before its publication is ours all the same, or would go round for
ever.

All others are cleaned: `x-mesh-*` from a publisher go away (a forged path must not suppress
delivery), and so do the counts that the queue adds; `user_id` and `cluster_id` move to headers,
since the deliverer needs both; every other byte stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from dedup.identity import IdentityForm, content_hash, identity_function, uuid7
from federation.mesh import IdentityKind, IdentityRule
from relay import core
from relay.batches.batch import Entry, make_entry
from relay.batches.mesh_headers import (
    CLUSTER_HEADER,
    DEATHS_HEADER,
    EXCHANGE_HEADER,
    FORGEABLE_PREFIX,
    USER_HEADER,
)
from relay.bulk_amqp import field_table
from relay.bulk_amqp.content_header import (
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    QUORUM_QUEUE_HEADERS,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    header,
    rewrite,
    text,
    without_headers,
)
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.properties import DEATH_HEADER, MAX_EXPIRATION_MS, death_digest

_TO_CLEAN = HEADERS | EXPIRATION | USER_ID | CLUSTER_ID
_LONE_DELIVERY_COUNT = b"\x00\x00\x00\x1a\x10x-delivery-countl"
"""Header table, up to its number, by which RabbitMQ 3.10 marks messages without headers."""
_LONE_BYTES = 4 + 26
_RANDOM_BYTES = 10
_RANDOM_MESSAGES = 256
_TABLES_REMEMBERED = 256
_TABLE_BYTES = 1024
"""Largest table that is remembered: longer ones are seldom alike."""


class Cleaned(NamedTuple):
    """Properties of a message as logged. `ttl_ms` is None without an expiration."""

    properties: bytes
    ttl_ms: int | None


class Intake:
    """Intake of one exchange. `relay_users` are the present and former users of the site's
    deliverer.

    `random_bytes(n)` returns n random bytes. `comes_round` False (split mode): nothing does, and
    anybody who may pass for the relay (a user with the tag `impersonator`, a shovel) is believed.
    """

    def __init__(
        self,
        exchange: str,
        rule: IdentityRule,
        relay_users: Collection[str],
        random_bytes: Callable[[int], bytes],
        *,
        comes_round: bool = True,
    ) -> None:
        self.exchange = exchange
        self._comes_round = comes_round
        self.malformed = 0
        """Number of messages with unreadable properties; they are logged as they came, and the
        deliverers quarantine them with a reason."""
        self._relay_users = frozenset(user.encode() for user in relay_users)
        self._own_mark = field_table.long_string(exchange.encode())
        self._identity_of = identity_function(IdentityForm(rule.kind.value))
        self._by_message_id = rule.kind in (IdentityKind.UUID, IdentityKind.MESSAGE_ID)
        self._header = rule.header.encode() if rule.kind is IdentityKind.HEADER else b""
        self._by_content = rule.kind is IdentityKind.CONTENT
        self._random_bytes = random_bytes
        self._random = b""
        self._random_at = 0
        self.rules: Any = None
        """`isthmus_core.IntakeRules`: the same rules for the native core, or None without."""
        if core.native is not None:
            users = list(self._relay_users) if comes_round else []
            self.rules = core.native.IntakeRules(rule.kind.value, self._header, users)
        self._tables_seen: dict[bytes, bool] = {}
        """Header table of a relay user's message -> True if the message came from this site."""

    def is_own_coming_round(self, properties: bytes) -> bool:
        """True if this site's deliverer published the message. Raises MalformedProperties."""
        if not self._comes_round:
            return False
        table, user = headers_and_user(properties)
        if user not in self._relay_users or not table:
            return False
        # Most tables are a deliverer's alone, as the message had none: a table for each path.
        own = self._tables_seen.get(table)
        if own is None:
            own = self._is_own_table(table)
            if len(table) <= _TABLE_BYTES:
                if len(self._tables_seen) >= _TABLES_REMEMBERED:
                    self._tables_seen.clear()
                self._tables_seen[table] = own
        if self.rules is not None:
            self.rules.learn(table, own)
        return own

    def _is_own_table(self, table: bytes) -> bool:
        # The deliverer's header is the last; any from a neighbour's batch stands before.
        if field_table.last_value(table, EXCHANGE_HEADER) != self._own_mark:
            return False
        death = field_table.value(table, DEATH_HEADER)
        digest = field_table.last_value(table, DEATHS_HEADER)
        return death is None or death_digest(death) == digest

    def clean(self, properties: bytes) -> Cleaned | None:
        """Return the properties as logged, or None for our own message coming round."""
        flags = properties[0] << 8 | properties[1] if len(properties) >= 2 else 0
        if not flags & _TO_CLEAN:
            return Cleaned(properties, None)
        try:
            if flags & HEADERS:
                if not flags & (USER_ID | CLUSTER_ID | EXPIRATION):
                    lone = _without_lone_delivery_count(properties, flags)
                    if lone is not None:
                        return Cleaned(lone, None)
                elif flags & USER_ID and self.is_own_coming_round(properties):
                    return None
            return self._cleaned(properties, flags)
        except (MalformedProperties, IndexError):
            self.malformed += 1
            return Cleaned(properties, None)

    def entry(
        self,
        routing_key: bytes,
        cleaned: Cleaned,
        body: bytes,
        now_ms: int,
    ) -> tuple[Entry, bool]:
        """Return the message as logged, and True if its identity is its own (not made here)."""
        properties, ttl = cleaned
        identity = self._own_identity(routing_key, properties, body)
        own = identity is not None
        return (
            make_entry(
                (
                    identity if identity is not None else self._made_identity(now_ms),
                    routing_key,
                    properties,
                    body,
                    now_ms,
                    0 if ttl is None else max(1, now_ms + ttl),
                    False,
                )
            ),
            own,
        )

    def random_left(self) -> bytes:
        """Return the random bytes that were drawn and of which no identity was made, some at
        least.
        """
        self._draw_if_used_up()
        return self._random[self._random_at :]

    def _draw_if_used_up(self) -> None:
        if self._random_at >= len(self._random):
            self._random = self._random_bytes(_RANDOM_BYTES * _RANDOM_MESSAGES)
            self._random_at = 0

    def random_used(self, count: int) -> None:
        """Note that identities were made of the next `count` random bytes."""
        self._random_at += count

    def names_itself(self, properties: bytes) -> bool:
        """True if a message with these properties has an identity of its own."""
        return self._own_identity(b"", properties, b"") is not None

    def _own_identity(self, routing_key: bytes, properties: bytes, body: bytes) -> bytes | None:
        try:
            if self._by_message_id:
                message_id = message_id_of(properties)
                return None if message_id is None else self._identity_of(message_id, None, b"")
            if self._header:
                value = header(properties, self._header)
                return self._identity_of(None, _text_of(value), b"")
            if self._by_content:
                kind = text(properties, CONTENT_TYPE)
                encoding = text(properties, CONTENT_ENCODING)
                return self._identity_of(
                    None, None, content_hash(routing_key, body, kind, encoding)
                )
        except MalformedProperties:
            return None
        return None

    def _made_identity(self, now_ms: int) -> bytes:
        self._draw_if_used_up()
        at = self._random_at
        self._random_at = at + _RANDOM_BYTES
        return uuid7(now_ms, self._random[at : at + _RANDOM_BYTES])

    def _cleaned(self, properties: bytes, flags: int) -> Cleaned:
        ttl = None
        if flags & EXPIRATION:
            expiration = text(properties, EXPIRATION)
            # The broker takes digits only; anything else it let pass, and so do we.
            if expiration is not None and expiration.isdigit():
                ttl = min(int(expiration), MAX_EXPIRATION_MS)
        moved = b""
        if flags & USER_ID:
            moved = field_table.entry(
                USER_HEADER, field_table.long_string(text(properties, USER_ID) or b"")
            )
        if flags & CLUSTER_ID:
            moved += field_table.entry(
                CLUSTER_HEADER, field_table.long_string(text(properties, CLUSTER_ID) or b"")
            )
        if flags & HEADERS:
            properties = without_headers(properties, (FORGEABLE_PREFIX,), QUORUM_QUEUE_HEADERS)
        if moved:
            properties = rewrite(properties, {USER_ID: None, CLUSTER_ID: None}, moved)
        return Cleaned(properties, ttl)


def is_named(entry: Entry) -> bool:
    """True if a logged message had an identity of its own when packed: an identity made here begins
    with the time at which the message was taken.
    """
    made_at = int.from_bytes(entry.identity[:6])
    return made_at != entry.published_ms or entry.identity[6] >> 4 != 7


def message_id_of(properties: bytes) -> bytes | None:
    """Return the message ID, or None if there is none. Raises MalformedProperties.

    Walks by hand what `content_header.text` walks by table: called for every message.
    """
    flags = properties[0] << 8 | properties[1] if len(properties) >= 2 else 0
    if not flags & MESSAGE_ID:
        return None
    at = 2
    try:
        if flags & CONTENT_TYPE:
            at += 1 + properties[at]
        if flags & CONTENT_ENCODING:
            at += 1 + properties[at]
        if flags & HEADERS:
            at += 4 + int.from_bytes(properties[at : at + 4], "big")
        if flags & DELIVERY_MODE:
            at += 1
        if flags & PRIORITY:
            at += 1
        if flags & CORRELATION_ID:
            at += 1 + properties[at]
        if flags & REPLY_TO:
            at += 1 + properties[at]
        if flags & EXPIRATION:
            at += 1 + properties[at]
        end = at + 1 + properties[at]
    except IndexError:
        raise MalformedProperties("a property is cut short", at) from None
    if end > len(properties):
        raise MalformedProperties("the message ID is cut short", at)
    return properties[at + 1 : end]


def headers_and_user(properties: bytes) -> tuple[bytes, bytes]:
    """Return header table and user ID, empty where there is none. Raises MalformedProperties.

    Walks by hand as `message_id_of`: called for every message that comes round.
    """
    flags = properties[0] << 8 | properties[1] if len(properties) >= 2 else 0
    at = 2
    table = user = b""
    try:
        if flags & CONTENT_TYPE:
            at += 1 + properties[at]
        if flags & CONTENT_ENCODING:
            at += 1 + properties[at]
        if flags & HEADERS:
            start = at + 4
            at = start + int.from_bytes(properties[at:start], "big")
            table = properties[start:at]
        if flags & USER_ID:
            if flags & DELIVERY_MODE:
                at += 1
            if flags & PRIORITY:
                at += 1
            if flags & CORRELATION_ID:
                at += 1 + properties[at]
            if flags & REPLY_TO:
                at += 1 + properties[at]
            if flags & EXPIRATION:
                at += 1 + properties[at]
            if flags & MESSAGE_ID:
                at += 1 + properties[at]
            if flags & TIMESTAMP:
                at += 8
            if flags & TYPE:
                at += 1 + properties[at]
            start = at + 1
            at = start + properties[at]
            user = properties[start:at]
    except IndexError:
        raise MalformedProperties("a property is cut short", at) from None
    if at > len(properties):
        raise MalformedProperties("a property is cut short", at)
    return table, user


def _without_lone_delivery_count(properties: bytes, flags: int) -> bytes | None:
    """Properties without a table that is only the queue's count, else None."""
    at = 2
    if flags & CONTENT_TYPE:
        at += 1 + properties[at]
    if flags & CONTENT_ENCODING:
        at += 1 + properties[at]
    if not properties.startswith(_LONE_DELIVERY_COUNT, at):
        return None
    flags &= ~HEADERS
    return b"".join((flags.to_bytes(2, "big"), properties[2:at], properties[at + _LONE_BYTES :]))


def _text_of(value: bytes | None) -> bytes | None:
    """Return a header's string without tag and length; other types whole, with their tag."""
    if value is None:
        return None
    return value[5:] if value[:1] in (b"S", b"x") else value
