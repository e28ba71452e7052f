"""A neighbour's broker user in the wrong hands: it speaks the link's language, and lies."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from federation.brokers.addresses import AddressBook
from federation.mesh import Link
from federation.names import Names
from relay.batches.batch import BatchHeader
from relay.links.rabbit_transport import LinkEndAddress, RabbitLinkConnector
from relay.links.settings import MIB
from relay.links.transport import Carried, LinkEnd
from relay.links.wire import (
    NONCE_BYTES,
    BadFrame,
    Frame,
    Welcome,
    decode_frame,
    encode_ask,
    encode_batch_frame,
)
from tests.waiting import until

WITHIN_S = 60.0
Said = TypeVar("Said")


class HostileSender:
    """The sender's end of one link."""

    def __init__(self, end: LinkEnd) -> None:
        self.heard: list[Frame] = []
        """All that the receiver has said, in order."""
        self.closed = ""
        self.nonce = b""
        self.number = 0
        """Of the batch that it sent last."""
        self._end = end
        self._welcome: Welcome | None = None
        end.listen(self)

    def on_frames(self, frames: Sequence[Carried]) -> None:
        for carried in frames:
            with contextlib.suppress(BadFrame):  # of a version that only a node has to know
                self.heard.append(decode_frame(carried.frame))

    def on_nobody(self, head: bytes) -> None:
        """The receiver is not there yet: `welcomed` asks again."""

    def on_closed(self, reason: str) -> None:
        self.closed = reason

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

    def raw(self, frame: bytes) -> None:
        """Any bytes."""
        self._end.send(frame)

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


@contextlib.asynccontextmanager
async def hostile_sender(book: AddressBook, link: Link) -> AsyncIterator[HostileSender]:
    """With the link user of the site where the link begins; that site's node must not run."""
    names, amqp = Names(book.mesh.name), book.link_end(link, link.sender)
    address = LinkEndAddress(
        uri=amqp.uri,
        user=amqp.user,
        sends_to=names.link_data(link),
        hears_from=names.link_acks(link),
        queue=names.sender_queue(link),
        is_receiver=False,
        queue_bytes=16 * MIB,
        name="in the wrong hands",
    )
    end = await RabbitLinkConnector(address).connect()
    try:
        yield HostileSender(end)
    finally:
        await end.close()
