"""How a line's connections end: in order, by reset, by half, or with the proxy."""

import asyncio

import pytest

from tests.wan_proxy.endpoints import Connect, Target, eventually, linked, open_line
from wan_proxy import ISDN_64K, LAN, LineCondition, WanProxy


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
