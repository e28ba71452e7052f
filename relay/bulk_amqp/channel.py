"""An AMQP channel: the rare methods, each a request and its answer, through pamqp.

Consumer and Publisher stand on a channel and take the bulk events from it. A channel carries at
most one of each, because delivery tags and publish sequence numbers are counted by channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pamqp import base as pamqp_base
from pamqp import commands
from pamqp.common import FieldValue

from relay.bulk_amqp.errors import BulkAmqpError, ChannelClosed, Misuse, UnexpectedFrame
from relay.bulk_amqp.frame_reader import Confirms, Delivery, Returned
from relay.bulk_amqp.frame_writer import FrameWriter

if TYPE_CHECKING:
    from relay.bulk_amqp.connection import Connection

_Answer = TypeVar("_Answer", bound=pamqp_base.Frame)


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """The broker's answer about a queue; the broker chose the name ``queue`` if none was given."""

    queue: str
    message_count: int  # ready ones, without those that are delivered but not settled
    consumer_count: int


class DeliveryTaker(Protocol):
    """Interface of a consumer for its channel."""

    consumer_tag: str

    def take(self, messages: Sequence[Delivery]) -> None: ...
    def cancelled_by_broker(self) -> None: ...
    def channel_closed(self, reason: BulkAmqpError) -> None: ...


class ConfirmTaker(Protocol):
    """Interface of a publisher for its channel."""

    def take_confirms(self, confirms: Confirms) -> None: ...
    def take_return(self, returned: Returned) -> None: ...
    def channel_closed(self, reason: BulkAmqpError) -> None: ...


class Channel:
    """Made by ``Connection.channel()``. All coroutines raise ChannelClosed or ConnectionClosed.

    A cancelled request closes the channel: nobody would know if the broker has fulfilled the
    request.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.writer = FrameWriter(number, connection.frame_max)
        self.consumer: DeliveryTaker | None = None
        self.publisher: ConfirmTaker | None = None
        self._requests: deque[tuple[type[pamqp_base.Frame], asyncio.Future[pamqp_base.Frame]]] = (
            deque()
        )
        self._closed: asyncio.Future[BulkAmqpError] = connection.loop.create_future()
        self._closing = False

    # --- life ---------------------------------------------------------------------------------

    @property
    def close_reason(self) -> BulkAmqpError | None:
        """ChannelClosed or ConnectionClosed, or None while the channel is open."""
        return self._closed.result() if self._closed.done() else None

    async def wait_closed(self) -> BulkAmqpError:
        """Wait until the channel is closed, by whomever; return the reason."""
        return await asyncio.shield(self._closed)

    async def close(self) -> None:
        """Close the channel; unsettled deliveries return to their queue, open publishes end
        unknown.
        """
        if self._closed.done():
            return
        if not self._closing:
            self._send_close()
        await self.wait_closed()

    # --- queues and exchanges -----------------------------------------------------------------

    async def declare_queue(
        self,
        queue: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> DeclaredQueue:
        """Make a queue, or (``passive``) only look the queue up."""
        answer = await self.request(
            commands.Queue.Declare(
                queue=queue,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                passive=passive,
                arguments=dict(arguments or {}),
            ),
            commands.Queue.DeclareOk,
        )
        return DeclaredQueue(
            answer.queue or "", answer.message_count or 0, answer.consumer_count or 0
        )

    async def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        await self.request(
            commands.Queue.Bind(
                queue=queue,
                exchange=exchange,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            commands.Queue.BindOk,
        )

    async def delete_queue(
        self, queue: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return the number of its messages. A missing queue is no error to the
        broker.
        """
        answer = await self.request(
            commands.Queue.Delete(queue=queue, if_unused=if_unused, if_empty=if_empty),
            commands.Queue.DeleteOk,
        )
        return answer.message_count or 0

    async def purge_queue(self, queue: str) -> int:
        """Purge a queue of its messages, except unacknowledged ones; return their number."""
        answer = await self.request(commands.Queue.Purge(queue=queue), commands.Queue.PurgeOk)
        return answer.message_count or 0

    async def declare_exchange(
        self,
        exchange: str,
        type: str = "topic",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        await self.request(
            commands.Exchange.Declare(
                exchange=exchange,
                exchange_type=type,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                passive=passive,
                arguments=dict(arguments or {}),
            ),
            commands.Exchange.DeclareOk,
        )

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        await self.request(
            commands.Exchange.Bind(
                destination=destination,
                source=source,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            commands.Exchange.BindOk,
        )

    # --- requests -----------------------------------------------------------------------------

    async def request(self, frame: pamqp_base.Frame, answer: type[_Answer]) -> _Answer:
        """Send a method and wait for its answer; several may be under way, answered in order."""
        self.check_open()
        self.connection.send_method(self.number, frame)
        future: asyncio.Future[pamqp_base.Frame] = self.connection.loop.create_future()
        self._requests.append((answer, future))
        try:
            result = await future
        except asyncio.CancelledError:
            if not self._closed.done() and not self._closing:
                self._send_close()
            raise
        assert isinstance(result, answer)
        return result

    def check_open(self) -> None:
        """Raise the reason why the channel is closed, or Misuse while it is being closed."""
        if self._closed.done():
            raise self._closed.result()
        if self._closing:
            raise Misuse(f"channel {self.number} is being closed: open another one")

    # --- what the connection hands over -------------------------------------------------------

    def take_deliveries(self, consumer_tag: str, messages: Sequence[Delivery]) -> None:
        if self._closing:
            return
        if self.consumer is None or self.consumer.consumer_tag != consumer_tag:
            raise UnexpectedFrame(503, f"deliveries for an unknown consumer {consumer_tag!r}")
        self.consumer.take(messages)

    def take_confirms(self, confirms: Confirms) -> None:
        if self.publisher is None:
            raise UnexpectedFrame(503, "a confirm on a channel that publishes nothing")
        self.publisher.take_confirms(confirms)

    def take_return(self, returned: Returned) -> None:
        if self.publisher is None:
            raise UnexpectedFrame(503, "a returned message on a channel that publishes nothing")
        self.publisher.take_return(returned)

    def take_method(self, frame: pamqp_base.Frame) -> None:
        if isinstance(frame, commands.Channel.Close):
            self.connection.send_method(self.number, commands.Channel.CloseOk())
            self.end(ChannelClosed(frame.reply_code or 0, frame.reply_text))
        elif isinstance(frame, commands.Channel.CloseOk) and self._closing:
            self.end(ChannelClosed(200, "closed by us"))
        elif self._closing:
            return  # answers that crossed our close
        elif isinstance(frame, commands.Basic.Cancel):
            if self.consumer is not None and self.consumer.consumer_tag == frame.consumer_tag:
                self.consumer.cancelled_by_broker()
        elif isinstance(frame, commands.Channel.Flow):
            self.connection.send_method(self.number, commands.Channel.FlowOk(frame.active))
        elif self._requests and isinstance(frame, self._requests[0][0]):
            _, future = self._requests.popleft()
            if not future.done():
                future.set_result(frame)
        else:
            raise UnexpectedFrame(503, f"{frame.name} on channel {self.number}, not asked for")

    def end(self, reason: BulkAmqpError) -> None:
        """End the channel, with the reason to all that wait on it."""
        if self._closed.done():
            return
        self._closed.set_result(reason)
        self.connection.forget_channel(self)
        while self._requests:
            _, future = self._requests.popleft()
            if not future.done():
                future.set_exception(reason)
        for taker in (self.publisher, self.consumer):
            if taker is not None:
                self.connection.tell(partial(taker.channel_closed, reason))

    def _send_close(self) -> None:
        self._closing = True
        self.connection.send_method(self.number, commands.Channel.Close(200, "", 0, 0))
