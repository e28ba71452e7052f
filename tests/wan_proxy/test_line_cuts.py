"""Lines that are cut: what waits, what is lost, and what nobody is told."""

import asyncio

import pytest

from tests.wan_proxy.endpoints import Connect, Target, eventually, linked, open_line
from wan_proxy import LineCondition, WanProxy
from wan_proxy.end import End


async def test_nothing_passes_during_a_cut_and_all_of_it_afterwards(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=1))
    client, accepted = await linked(line, target, connect)
    other_line = await open_line(proxy, target, name="oslo")
    witness, witness_target = await linked(other_line, target, connect)

    line.cut()
    client.write(b"into the dark")
    accepted.writer.write(b"out of the dark")
    # What goes another way later is there, so what is cut had its time.
    for _ in range(5):
        witness.write(b".")
        seen = len(witness_target.received)
        await eventually(lambda seen=seen: len(witness_target.received) > seen, "the witness")
    assert accepted.received == b""
    assert client.received == b"<"
    assert client.end is None
    assert accepted.end is None

    line.heal()
    await eventually(lambda: accepted.received == b"into the dark", "outward after healing")
    await eventually(lambda: client.received == b"<out of the dark", "inward after healing")


@pytest.mark.parametrize("way", ["outward", "inward"])
async def test_one_direction_can_be_lost_while_the_other_goes_on(
    way: str, proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    line.cut(way)  # type: ignore[arg-type]
    client.write(b"out")
    accepted.writer.write(b"in")
    if way == "outward":
        await eventually(lambda: client.received == b"<in", "inward goes on")
        assert accepted.received == b""
    else:
        await eventually(lambda: accepted.received == b"out", "outward goes on")
        assert client.received == b"<"
    line.heal()
    await eventually(lambda: accepted.received == b"out", "outward after healing")
    await eventually(lambda: client.received == b"<in", "inward after healing")


async def test_an_end_that_leaves_during_a_cut_is_noticed_only_afterwards(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    other_line = await open_line(proxy, target, name="oslo")
    line.cut()
    client.write(b"last words")
    client.write_end()
    await linked(other_line, target, connect)
    assert accepted.end is None
    line.heal()
    await eventually(lambda: accepted.end == "FIN", "FIN after healing")
    assert accepted.received == b"last words"


async def test_a_connect_during_a_cut_is_held_and_goes_through_afterwards(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    line.cut("inward")
    client = await connect(line.port)
    client.write(b"hello?")
    await eventually(lambda: line.statistics().accepted == 1, "accepted by the proxy")
    assert target.connections == []
    line.heal()
    accepted = await target.connection()
    await eventually(lambda: accepted.received == b"hello?", "hello")


async def test_a_connect_can_be_left_unanswered_during_a_cut(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    line.cut(new_connects="unanswered")
    connecting = asyncio.create_task(connect(line.port))
    done, _ = await asyncio.wait([connecting], timeout=0.2)
    assert not done
    assert line.statistics().accepted == 1
    line.heal()
    late = await asyncio.wait_for(connecting, 20)  # the kernel tries again after one second
    late.write(b"at last")
    late_target = await target.connection(1)
    await eventually(lambda: late_target.received == b"at last", "at last")
    client.write(b"me too")
    await eventually(lambda: accepted.received == b"me too", "the one from before")
    assert line.statistics().accepted == 2


async def test_a_forgetting_cut_swallows_bytes_and_resets_when_healed(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=1))
    client, accepted = await linked(line, target, connect)
    line.cut(forget=True)
    late = await connect(line.port)
    client.write(bytes(30_000_000))
    await eventually(lambda: line.statistics().outward.bytes_dropped == 30_000_000, "all swallowed")
    assert accepted.received == b""
    assert (client.end, accepted.end) == (None, None)
    line.heal()
    await eventually(lambda: client.end == "RST", "RST at the client")
    await eventually(lambda: accepted.end == "RST", "RST at the target")
    await eventually(lambda: late.end == "RST", "RST at the one that came meanwhile")
    await linked(line, target, connect)


async def test_a_connection_that_is_forgotten_as_it_is_made_ends_with_the_cut(
    proxy: WanProxy, target: Target, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await open_line(proxy, target)
    begun = End.connection_made
    made = 0

    def forgotten(end: End, transport: asyncio.BaseTransport) -> None:
        nonlocal made
        made += 1
        begun(end, transport)
        if made == 2:  # the first is the client's
            line.cut(forget=True)

    monkeypatch.setattr(End, "connection_made", forgotten)
    client = await connect(line.port)
    await eventually(lambda: made == 2, "the target is reached")
    line.heal()
    await eventually(lambda: client.end == "RST", "RST at the client")
    await eventually(lambda: line.statistics().open == 0, "nothing is open")
    await linked(line, target, connect)
