"""A neighbour's broker user in the wrong hands: it speaks the link's language, and lies."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from federation.brokers.addresses import AddressBook
from federation.mesh import Link
from federation.names import Names
from relay.batches.batch import BatchHeader, Entry
from relay.batches.format import seal
from relay.batches.known_formats import KNOWN
from relay.batches.name_set import NameSet
from relay.batches.signature import Signer
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.links.settings import MIB
from relay.links.transport.link_end import Carried, LinkEnd
from relay.links.transport.rabbit import LinkEndAddress, RabbitLinkConnector
from relay.links.wire import (
    NONCE_BYTES,
    RUN_BYTES,
    Ack,
    Ask,
    BadFrame,
    Frame,
    Welcome,
    decode_frame,
    encode_ack,
    encode_ask,
    encode_batch_frame,
    encode_hello,
    encode_welcome,
)
from tests.log_batches import batch
from tests.waiting import until

WITHIN_S = 60.0
Said = TypeVar("Said")


class _HostileEnd:
    """One end of a link."""

    def __init__(self, end: LinkEnd) -> None:
        self.heard: list[Frame] = []
        """All that the other end has said, in order."""
        self.closed = ""
        self.nonce = b""
        self._end = end
        end.listen(self)

    def on_frames(self, frames: Sequence[Carried]) -> None:
        for carried in frames:
            with contextlib.suppress(BadFrame):  # of a version that only a node has to know
                self.heard.append(decode_frame(carried.frame))

    def on_returned(self, head: bytes) -> None:
        """The receiver is not there yet: `welcomed` asks again."""

    def on_closed(self, reason: str) -> None:
        self.closed = reason

    def raw(self, frame: bytes) -> None:
        """Any bytes."""
        self._end.send(frame)

    async def hears(
        self, kind: type[Said], is_it: Callable[[Said], bool] = lambda one: True
    ) -> Said:
        """The first frame of this kind and session of which that holds."""

        def found() -> Said | None:
            for one in self.heard:
                if isinstance(one, kind) and one.nonce == self.nonce and is_it(one):
                    return one
            return None

        return await until(found, lambda: f"{kind.__name__}: {self._last()}", WITHIN_S)

    def _last(self) -> str:
        return f"{self.closed or 'connected'}, heard {[str(one)[:200] for one in self.heard[-5:]]}"


class HostileReceiver(_HostileEnd):
    """The receiver's end of one link."""

    def __init__(self, end: LinkEnd) -> None:
        super().__init__(end)
        self.run = secrets.token_bytes(RUN_BYTES)

    async def next_ask(self) -> Ask:
        """Send a hello, and wait for the sender's ask."""
        self.heard.clear()
        self.raw(encode_hello(self.run))
        found = await until(
            lambda: [one for one in self.heard if isinstance(one, Ask)],
            lambda: f"asked: {self._last()}",
            WITHIN_S,
        )
        self.nonce = found[-1].nonce
        return found[-1]

    async def welcomes(self, logged: bytes | None = None) -> None:
        """A session, as whose log has these names: none unless told."""
        ask = await self.next_ask()
        names = NameSet().encode() if logged is None else logged
        self.raw(
            encode_welcome(
                Welcome(self.nonce, self.run, ask.wall_ms, ask.wall_ms, b"log", names, KNOWN, 2)
            )
        )

    def acks(self, logged: int, arrived: int) -> None:
        """All up to these numbers."""
        self.raw(encode_ack(2, Ack(self.nonce, self.run, logged, arrived, 0, 0)))


class HostileSender(_HostileEnd):
    """The sender's end of one link."""

    def __init__(self, end: LinkEnd) -> None:
        super().__init__(end)
        self.number = 0
        """Of the batch that it sent last."""
        self._welcome: Welcome | None = None

    async def welcomed(self) -> Welcome:
        """A new session."""
        self.nonce, self.number = secrets.token_bytes(NONCE_BYTES), 0

        def answer() -> Welcome | None:
            found = [
                one for one in self.heard if isinstance(one, Welcome) and one.nonce == self.nonce
            ]
            if not found:
                self.raw(encode_ask(self.nonce, 0))
            return found[0] if found else None

        self._welcome = await until(
            answer, lambda: f"welcomed: {self._last()}", WITHIN_S, every_s=0.5
        )
        return self._welcome

    def send(
        self,
        header: BatchHeader,
        data: bytes,
        *,
        number: int | None = None,
        suspect: bool = False,
    ) -> None:
        """A batch, with the next number unless told."""
        assert self._welcome is not None
        if number is None:
            number = self.number = self.number + 1
        self.raw(
            encode_batch_frame(
                self._welcome.version,
                self.nonce,
                self._welcome.run,
                number,
                data,
                header.path,
                suspect,
            )
        )


def of_origin(
    origin: str,
    *path: str,
    body: bytes = b"body",
    by: Signer | None = None,
    message: Entry | None = None,
    **otherwise: Any,
) -> tuple[BatchHeader, bytes]:
    """A batch of one message, the first of a run, signed `by` somebody; `otherwise` are fields of
    its header.
    """
    now_ms = time.time_ns() // 1_000_000
    entry = message or Entry(secrets.token_bytes(16), b"order.new", NONE_PRESENT, body, now_ms)
    header, _ = batch(
        1, origin=origin, incarnation=secrets.token_bytes(8), published_ms=now_ms, messages=1
    )
    header = replace(header, path=path, format=2 if by else 1)
    return seal(replace(header, **otherwise), [entry], by)


@contextlib.asynccontextmanager
async def hostile_sender(book: AddressBook, link: Link) -> AsyncIterator[HostileSender]:
    """With the link user of the site where the link begins; that site's node must not run."""
    end = await RabbitLinkConnector(_address(book, link, link.sender)).connect()
    try:
        yield HostileSender(end)
    finally:
        await end.close()


@contextlib.asynccontextmanager
async def hostile_receiver(book: AddressBook, link: Link) -> AsyncIterator[HostileReceiver]:
    """With the link user of the site where the link ends; that site's node must not run."""
    end = await RabbitLinkConnector(_address(book, link, link.receiver)).connect()
    try:
        yield HostileReceiver(end)
    finally:
        await end.close()


def _address(book: AddressBook, link: Link, site: str) -> LinkEndAddress:
    names, amqp, receives = Names(book.mesh.name), book.link_end(link, site), site == link.receiver
    data, acks = names.link_data(link), names.link_acks(link)
    return LinkEndAddress(
        uri=amqp.uri,
        user=amqp.user,
        sends_to=acks if receives else data,
        hears_from=data if receives else acks,
        queue=names.receiver_queue(link) if receives else names.sender_queue(link),
        is_receiver=receives,
        queue_bytes=16 * MIB,
        name="in the wrong hands",
    )
