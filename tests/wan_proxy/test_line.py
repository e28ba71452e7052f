"""Lines over loopback: what arrives, in which order, and what nobody is told."""

import asyncio
import resource
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.wan_proxy.endpoints import Accepted, Client, Target, eventually, some_bytes
from wan_proxy import (
    ISDN_64K,
    LAN,
    ConditionError,
    DirectionCondition,
    Line,
    LineCondition,
    WanProxy,
)

Connect = Callable[[int], Coroutine[Any, Any, Client]]

HARD = LineCondition.both_ways(
    delay_ms=4, jitter_ms=6, rate_bits_per_s=200e6, late_fraction=0.002, late_by_ms=5
)


async def open_line(
    proxy: WanProxy, target: Target, condition: LineCondition | str = LAN, name: str = "paris"
) -> Line:
    return await proxy.open_line(name, "127.0.0.1", target.port, condition)


async def linked(line: Line, target: Target, connect: Connect) -> tuple[Client, Accepted]:
    """A client and its counterpart at the target, after a byte went each way."""
    index = len(target.connections)
    client = await connect(line.port)
    client.write(b">")
    accepted = await target.connection(index)
    await eventually(lambda: accepted.received == b">", "first byte at the target")
    accepted.writer.write(b"<")
    await eventually(lambda: client.received == b"<", "first byte back")
    accepted.received.clear()
    return client, accepted


async def test_bytes_pass_both_ways_and_each_end_of_stream_by_itself(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client = await connect(line.port)
    client.write(b"question")
    client.write_end()
    accepted = await target.connection()
    await eventually(lambda: accepted.end == "FIN", "FIN at the target")
    assert accepted.received == b"question"
    accepted.writer.write(b"answer, after the question's end")
    accepted.writer.close()
    await eventually(lambda: client.end == "FIN", "FIN at the client")
    assert client.received == b"answer, after the question's end"
    await eventually(lambda: line.statistics().open == 0, "the connection is over")


@pytest.mark.parametrize("condition", [LAN, HARD], ids=["transparent", "hard"])
async def test_twenty_megabytes_arrive_byte_for_byte(
    condition: LineCondition, proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, condition)
    client = await connect(line.port)
    sent = some_bytes(20_000_000)
    client.write(sent)
    client.write_end()
    accepted = await target.connection()
    await eventually(lambda: accepted.end is not None, "all of it")
    assert accepted.received == sent
    assert (line.statistics().outward.late_segments > 0) == (condition is HARD)


async def test_bytes_stay_in_order_while_conditions_change_under_them(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client = await connect(line.port)
    sent = some_bytes(4_000_000)
    conditions = [LAN, HARD, ISDN_64K, LineCondition.both_ways(delay_ms=3), LAN, HARD]
    for start in range(0, len(sent), 500_000):
        line.set(conditions[start // 500_000 % len(conditions)])
        client.write(sent[start : start + 500_000])
        if start == 2_000_000:
            line.cut()
            line.heal()
    line.set(LAN)
    client.write_end()
    accepted = await target.connection()
    await eventually(lambda: accepted.end is not None, "all of it")
    assert accepted.received == sent


async def test_a_rate_cap_takes_at_least_the_computed_time(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(rate_bits_per_s=512e3))
    client = await connect(line.port)
    sent = some_bytes(64_000)
    loop = asyncio.get_running_loop()
    start = loop.time()
    client.write(sent)
    accepted = await target.connection()
    await eventually(lambda: accepted.received == sent, "64 kB")
    assert loop.time() - start >= (64_000 - 3_000) * 8 / 512e3  # a burst of two frames is free


async def test_connections_of_a_line_share_its_rate(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(rate_bits_per_s=1e6))
    loop = asyncio.get_running_loop()
    clients = [await connect(line.port) for _ in range(4)]
    accepted = [await target.connection(index) for index in range(4)]
    start = loop.time()
    for client in clients:
        client.write(some_bytes(25_000))
    await eventually(lambda: all(len(one.received) == 25_000 for one in accepted), "4 x 25 kB")
    assert loop.time() - start >= (100_000 - 3_000) * 8 / 1e6


async def test_a_connection_with_little_to_say_is_not_starved_by_one_with_much(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    quiet, quiet_target = await linked(line, target, connect)
    loud, loud_target = await linked(line, target, connect)
    line.set(LineCondition.both_ways(rate_bits_per_s=1e6, queue_bytes=10_000))
    loud.write(some_bytes(5_000_000))
    await eventually(lambda: len(loud_target.received) > 20_000, "the loud one is under way")
    quiet.write(b"a word")
    await eventually(lambda: quiet_target.received == b"a word", "a word in between")
    assert len(loud_target.received) < 5_000_000


async def test_delay_is_at_least_what_was_asked_for_in_each_direction(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    condition = LineCondition(
        outward=DirectionCondition(delay_ms=60), inward=DirectionCondition(delay_ms=20)
    )
    line = await open_line(proxy, target, condition)
    loop = asyncio.get_running_loop()
    client = await connect(line.port)
    accepted = await target.connection()
    start = loop.time()
    client.write(b"ping")
    await eventually(lambda: accepted.received == b"ping", "ping")
    there = loop.time()
    accepted.writer.write(b"pong")
    await eventually(lambda: client.received == b"pong", "pong")
    assert there - start >= 0.060
    assert loop.time() - there >= 0.020


async def test_a_full_line_pushes_back_to_the_sender(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, ISDN_64K)
    client = await connect(line.port)
    await target.connection()
    client.write(some_bytes(20_000_000))
    await eventually(lambda: line.statistics().outward.bytes_held >= 8_000, "a full queue")
    await asyncio.sleep(0.1)  # time in which an unbounded proxy would take megabytes
    assert client.is_stuck()
    # The queue is a second of the rate, 8 kB, and what is in the air for 20 ms.
    assert line.statistics().outward.bytes_held < 12_000


async def test_a_target_that_does_not_read_stops_only_its_own_connection(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=1, rate_bits_per_s=1e9))
    stuck, stuck_target = await linked(line, target, connect)
    other, other_target = await linked(line, target, connect)
    stuck_target.stop_reading()
    stuck.write(bytes(40_000_000))
    await eventually(lambda: line.statistics().outward.bytes_held > 4_000_000, "a full window")
    assert stuck.is_stuck()
    other.write(b"still fine")
    await eventually(lambda: other_target.received == b"still fine", "the other connection")
    assert line.statistics().outward.bytes_held < 6_000_000


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


async def test_reset_reaches_both_ends_at_once_and_new_connections_work(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=5_000))
    client = await connect(line.port)
    accepted = await target.connection()
    line.reset()
    await eventually(lambda: client.end == "RST", "RST at the client")
    await eventually(lambda: accepted.end == "RST", "RST at the target")
    assert line.statistics().open == 0
    line.set(LAN)
    await linked(line, target, connect)


async def test_close_is_an_orderly_end_for_both(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    line.close()
    await eventually(lambda: client.end == "FIN", "FIN at the client")
    await eventually(lambda: accepted.end == "FIN", "FIN at the target")


@pytest.mark.parametrize("kept", ["client", "target"])
async def test_half_open_leaves_one_side_believing(
    kept: str, proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    line.half_open(kept)  # type: ignore[arg-type]
    gone, believer = (accepted, client) if kept == "client" else (client, accepted)
    await eventually(lambda: gone.end == "RST", "RST at the one")
    if kept == "client":
        client.write(b"anyone?")
    else:
        accepted.writer.write(b"anyone?")
    await linked(line, target, connect)
    await eventually(
        lambda: (
            line.statistics().outward.bytes_dropped + line.statistics().inward.bytes_dropped == 7
        ),
        "what the believer says vanishes",
    )
    assert believer.end is None
    line.heal()
    await eventually(lambda: believer.end == "RST", "RST at the believer")


async def test_a_reset_by_one_end_reaches_the_other_after_the_delay(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=40))
    client, accepted = await linked(line, target, connect)
    loop = asyncio.get_running_loop()
    start = loop.time()
    client.reset()
    await eventually(lambda: accepted.end == "RST", "RST at the target")
    assert loop.time() - start >= 0.040
    await eventually(lambda: line.statistics().open == 0, "the connection is over")


async def test_a_target_that_is_not_there_resets_the_client_and_is_counted(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    nowhere = await proxy.open_line("nowhere", "127.0.0.1", line.port)
    await proxy.close_line("paris")
    client = await connect(nowhere.port)
    await eventually(lambda: client.end == "RST", "RST")
    assert nowhere.statistics().unreachable == 1


async def test_statistics_add_up(proxy: WanProxy, target: Target, connect: Connect) -> None:
    line = await open_line(proxy, target, LineCondition.both_ways(delay_ms=2))
    client, accepted = await linked(line, target, connect)
    client.write(some_bytes(100_000))
    accepted.writer.write(some_bytes(50_000))
    await eventually(lambda: len(accepted.received) == 100_000, "100 kB")
    await eventually(lambda: len(client.received) == 50_001, "50 kB")
    statistics = line.statistics()
    assert (statistics.accepted, statistics.open, statistics.unreachable) == (1, 1, 0)
    assert (statistics.outward.bytes_read, statistics.outward.bytes_delivered) == (100_001, 100_001)
    assert (statistics.inward.bytes_read, statistics.inward.bytes_delivered) == (50_001, 50_001)
    assert statistics.outward.bytes_held == statistics.inward.bytes_held == 0


async def test_closing_the_proxy_leaves_no_connection(target: Target, connect: Connect) -> None:
    async with WanProxy() as proxy:
        line = await open_line(proxy, target, ISDN_64K)
        clients = [await connect(line.port) for _ in range(5)]
        for client in clients:
            client.write(bytes(1_000_000))
        await target.connection(4)
        line.cut()
        held = await connect(line.port)
    assert line.statistics().open == 0
    for client in (*clients, held):
        await eventually(lambda client=client: client.end is not None, "told")


async def test_a_line_without_conditions_costs_little_cpu(
    proxy: WanProxy, target: Target, connect: Connect
) -> None:
    line = await open_line(proxy, target)
    client, accepted = await linked(line, target, connect)
    size = 50_000_000
    before = resource.getrusage(resource.RUSAGE_SELF)
    client.write(bytes(size))
    await eventually(lambda: len(accepted.received) == size, "50 MB")
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Client, proxy and target together, on any machine: 1 Gbit/s would be 0.4 s.
    assert spent < 2.0


async def test_names_are_taken_once_and_unknown_ones_list_the_known(
    proxy: WanProxy, target: Target
) -> None:
    await open_line(proxy, target)
    with pytest.raises(ConditionError, match="use another"):
        await open_line(proxy, target)
    with pytest.raises(ConditionError, match="use one of paris"):
        proxy.line("london")
