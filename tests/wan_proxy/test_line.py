"""What passes over a line on loopback: all of it, in order, as fast and as late as asked."""

import asyncio
import resource

import pytest

from tests.wan_proxy.endpoints import Connect, Target, eventually, linked, open_line, some_bytes
from wan_proxy import ISDN_64K, LAN, ConditionError, DirectionCondition, LineCondition, WanProxy

HARD = LineCondition.both_ways(
    delay_ms=4, jitter_ms=6, rate_bits_per_s=200e6, late_fraction=0.002, late_by_ms=5
)


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
    took_s = round(loop.time() - start, 6)  # the loop counts in whole milliseconds
    assert took_s >= (100_000 - 3_000) * 8 / 1e6


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
    before = line.statistics().outward
    # A tenth of a second at this rate, in which an unbounded proxy would take megabytes.
    await eventually(
        lambda: line.statistics().outward.bytes_delivered >= before.bytes_delivered + 800,
        "the line goes on at its rate",
    )
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
