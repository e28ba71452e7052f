"""Consumer that takes deliveries off a queue in bulk, and settles them by tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pamqp import commands
from pamqp.common import FieldValue

from relay.bulk_amqp.channel import Channel
from relay.bulk_amqp.errors import AckOutOfOrder, BulkAmqpError, ConsumerCancelled, Misuse
from relay.bulk_amqp.frame_reader import CONSUMER_TAG_LENGTH, Delivery, last_tag
from relay.bulk_amqp.frame_writer import BASIC_ACK, BASIC_NACK

_MULTIPLE, _REQUEUE = 1, 2


class Consumer:
    """A consumer, alone on its channel.

    ``on_deliveries`` is called, synchronously, once per read of the socket with all deliveries that
    the read completed, in order; if it raises, the connection closes (CallbackFailed), so that
    nothing is skipped. ``on_ended`` is called once, when no delivery will come any more: with
    ConsumerCancelled if the broker ended the consumer, else with the reason why the channel closed.
    A consumer that never began reports only by the exception of ``start``.

    There is no ``cancel()``: of a cancelled consumer, a quorum queue takes back at once what was on
    its way, and only with the channel what had come before, so that the next consumer gets the
    messages in another order (RabbitMQ 3.10 and 4.0). Close the channel instead.
    """

    def __init__(
        self,
        channel: Channel,
        queue: str,
        on_deliveries: Callable[[Sequence[Delivery]], None],
        *,
        on_ended: Callable[[BulkAmqpError], None] | None = None,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.consumer_tag = f"c{channel.connection.next_consumer():0{CONSUMER_TAG_LENGTH - 1}d}"
        self.delivered_up_to = 0
        self.settled_up_to = 0
        self.ended: BulkAmqpError | None = None
        self._on_deliveries = on_deliveries
        self._on_ended = on_ended
        self._singles: set[int] = set()  # settled one by one, above settled_up_to
        self._number = channel.number
        self._started = False
        self._no_ack = False
        self._runs = False

    async def start(
        self,
        *,
        prefetch: int = 2000,
        exclusive: bool = False,
        no_ack: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Begin. ``prefetch``: most unsettled deliveries (a quorum queue of 3.10 allows 2000). With
        ``no_ack`` the broker settles deliveries as it sends them, and none may be settled here.

        Deliveries may come before this returns. Raises ChannelClosed (404, 403, 405),
        ConnectionClosed.
        """
        if self._started or self.channel.consumer is not None:
            raise Misuse("one consumer a channel, started once: open another channel")
        self._started = True
        self._no_ack = no_ack
        self.channel.consumer = self
        await self.channel.request(
            commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk
        )
        await self.channel.request(
            commands.Basic.Consume(
                queue=self.queue,
                consumer_tag=self.consumer_tag,
                exclusive=exclusive,
                no_ack=no_ack,
                arguments=dict(arguments or {}),
            ),
            commands.Basic.ConsumeOk,
        )
        if self.ended is not None:
            raise self.ended  # in the same read as the answer
        self._runs = True

    def ack(self, tag: int, *, multiple: bool = True) -> None:
        """Settle ``tag``, with ``multiple`` all before it too. Raises AckOutOfOrder."""
        self._settle(BASIC_ACK, tag, multiple, 0)

    def nack(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        """Refuse ``tag``: back to the queue, or (``requeue=False``) dropped or dead-lettered."""
        self._settle(BASIC_NACK, tag, multiple, _REQUEUE if requeue else 0)

    def pause(self) -> None:
        """Stop reading the socket: for all that the connection carries, confirms included.

        For short breaths. A broker with more to send ends the connection when nothing was taken for
        30 s (seen on RabbitMQ 3.10; heartbeats do not help). To wait longer, leave deliveries
        unsettled instead: the prefetch limit then stops the broker.
        """
        self.channel.connection.pause_reading(self)

    def resume(self) -> None:
        """Read again, unless others on this connection have paused."""
        self.channel.connection.resume_reading(self)

    def _settle(self, method: int, tag: int, multiple: bool, bits: int) -> None:
        if self._no_ack:
            raise Misuse("a consumer without acknowledgements has nothing to settle")
        if tag <= self.settled_up_to or tag > self.delivered_up_to or tag in self._singles:
            raise AckOutOfOrder(tag, self.settled_up_to, self.delivered_up_to)
        channel = self.channel
        channel.check_open()
        channel.connection.send(
            channel.writer.settle(method, tag, bits | _MULTIPLE if multiple else bits)
        )
        if not multiple and tag != self.settled_up_to + 1:
            self._singles.add(tag)
            return
        self.settled_up_to = tag
        if self._singles:
            self._singles = {n for n in self._singles if n > tag}
            while self.settled_up_to + 1 in self._singles:
                self.settled_up_to += 1
                self._singles.discard(self.settled_up_to)

    # --- what the channel hands over ------------------------------------------------------------

    def take(self, messages: Sequence[Delivery]) -> None:
        self.delivered_up_to = last_tag(messages)
        self._on_deliveries(messages)

    def cancelled_by_broker(self) -> None:
        self._end(ConsumerCancelled(self.queue, self.consumer_tag))

    def channel_closed(self, reason: BulkAmqpError) -> None:
        self.resume()
        self._end(reason)

    def _end(self, reason: BulkAmqpError) -> None:
        if self.ended is None:
            self.ended = reason
            if self._on_ended is not None and self._runs:
                self._on_ended(reason)
