"""A contender at a broker node that is cut off from the others: no proof comes."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from relay.bulk_amqp import connect
from relay.lease import ClusterLease, LeaseHeld, LeaseTimes
from tests.relay.bulk_amqp import wire
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker, forever

WHERE_A_JOURNAL_DECIDES = LeaseTimes(lease_s=60.0, patience_s=0.3, behind_s=0.1)
PROBE = (1, True, "lease", b"", b"\x00\x00", b"a former holder." + bytes(8))


async def test_behind_a_former_holder_it_waits_no_longer_than_it_would_have_to() -> None:
    """The node has handed out the former holder's last probe, and loses the contender's own."""

    given = asyncio.Event()

    async def serve(client: Client) -> None:
        await client.log_in()
        channel = await client.open_channel()
        while True:
            _, frame = await client.next_frame()
            if isinstance(frame, commands.Basic.Qos):
                client.send(channel, commands.Basic.QosOk())
            if isinstance(frame, commands.Basic.Consume):
                client.send(channel, commands.Basic.ConsumeOk(frame.consumer_tag))
                client.writer.write(wire.delivery(channel, frame.consumer_tag, PROBE))
                break
        given.set()
        await forever()

    async with fake_broker(serve) as uri:
        connection = await connect(uri)
        lease = ClusterLease(connection, "lease", b"h" * 16, WHERE_A_JOURNAL_DECIDES)
        async with asyncio.timeout(10):
            with pytest.raises(LeaseHeld):
                await lease.take()
        assert given.is_set()
        connection.abort("the test is over")
