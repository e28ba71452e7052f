"""Gates, and the timer that grants what waits before them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import pytest

from federation.mesh import Link
from relay.bulk_amqp.paced_writer import PacedWriter
from relay.links.budget import Rates
from relay.links.uplink import Uplink, minute_of_day, rates_at
from tests.federation.meshes import TRIANGLE, mesh_of

LANED = mesh_of("lanes: [urgent, normal, bulk]\nmax_rate: 80kbit/s\n" + TRIANGLE)
LINK = next(link for link in LANED.links if link.name == "paris-tokyo")
URGENT, NORMAL, BULK = LANED.strands(LINK)
LIMITED = rates_at(LANED, "paris", 0)


class Timers:
    """`call_later` in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._numbers = count()

    def later(self, delay_s: float, call: Callable[[], None]) -> _Timer:
        number = next(self._numbers)
        heapq.heappush(self._due, (self.now + delay_s, number, call))
        return _Timer(self._cancelled, number)

    @property
    def is_idle(self) -> bool:
        return all(number in self._cancelled for _, number, _ in self._due)

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, number, call = heapq.heappop(self._due)
            if number not in self._cancelled:
                call()
        self.now = until


class _Timer:
    def __init__(self, cancelled: set[int], number: int) -> None:
        self._cancelled = cancelled
        self._number = number

    def cancel(self) -> None:
        self._cancelled.add(self._number)


class World:
    def __init__(self, rates: Rates = LIMITED) -> None:
        self.timers = Timers()
        self.uplink = Uplink(lambda: self.timers.now, self.timers.later)
        self.uplink.change(rates)
        self.written: dict[str, bytearray] = {}

    def writer(self, link: Link) -> PacedWriter:
        written = self.written[link.name] = bytearray()
        return PacedWriter(
            self.uplink.gate(link), lambda pieces: [written.extend(one) for one in pieces] and None
        )


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_written_keeps_its_order_and_the_rate(world: World) -> None:
    writer = world.writer(BULK)
    data = bytes(n % 251 for n in range(100_000))
    for start in range(0, len(data), 7_001):
        writer.write([data[start : start + 7_001]])
    world.timers.run(5.0)
    assert len(world.written[BULK.name]) == pytest.approx(50_000, rel=0.03)
    assert writer.waiting == 100_000 - len(world.written[BULK.name])
    world.timers.run(20.0)
    assert world.written[BULK.name] == data
    assert writer.waiting == 0
    assert world.timers.is_idle


def test_a_frame_in_pieces_is_written_as_it_is(world: World) -> None:
    writer = world.writer(NORMAL)
    writer.write([b"head", memoryview(bytes(3000)), b"", b"end"])
    world.timers.run(2.0)
    assert world.written[NORMAL.name] == b"head" + bytes(3000) + b"end"


def test_urgent_bytes_go_while_bulk_waits(world: World) -> None:
    bulk, urgent = world.writer(BULK), world.writer(URGENT)
    bulk.write([bytes(1_000_000)])
    world.timers.run(10.0)
    urgent.write([b"alarm"])
    world.timers.run(10.2)
    assert world.written[URGENT.name] == b"alarm"
    assert bulk.waiting > 800_000


def test_without_a_rate_all_goes_at_once_and_no_timer_runs() -> None:
    world = World(Rates())
    world.writer(NORMAL).write([bytes(10_000_000)])
    assert len(world.written[NORMAL.name]) == 10_000_000
    assert world.timers.is_idle


def test_what_waits_goes_at_once_when_the_rate_is_gone(world: World) -> None:
    world.writer(BULK).write([bytes(1_000_000)])
    world.timers.run(1.0)
    world.uplink.change(Rates())
    assert len(world.written[BULK.name]) == 1_000_000


def test_nothing_is_granted_to_a_line_that_takes_no_more_and_others_have_its_part(
    world: World,
) -> None:
    bulk, normal = world.writer(BULK), world.writer(NORMAL)
    gate = world.uplink.gate(BULK)
    bulk.write([bytes(1_000_000)])
    normal.write([bytes(1_000_000)])
    world.timers.run(1.0)
    gate.hold()
    assert not gate.holds_back
    before, others = len(world.written[BULK.name]), len(world.written[NORMAL.name])
    world.timers.run(11.0)
    assert len(world.written[BULK.name]) == before
    assert len(world.written[NORMAL.name]) - others == pytest.approx(100_000, rel=0.05)
    gate.go_on()
    assert gate.holds_back
    world.timers.run(12.0)
    assert len(world.written[BULK.name]) > before


def test_a_connection_that_is_gone_takes_what_waited_with_it(world: World) -> None:
    writer = world.writer(BULK)
    writer.write([bytes(1_000_000)])
    world.timers.run(1.0)
    writer.drop()
    writer.drop()
    written = len(world.written[BULK.name])
    world.timers.run(10.0)
    assert len(world.written[BULK.name]) == written
    assert writer.waiting == 0
    assert world.timers.is_idle
    world.writer(BULK).write([b"next"])
    world.timers.run(11.0)
    assert world.written[BULK.name] == b"next"


def test_a_strand_that_is_no_more_holds_nobody_up(world: World) -> None:
    world.writer(BULK).write([bytes(1_000_000)])
    world.uplink.forget(BULK)
    world.writer(NORMAL).write([bytes(10_000)])
    world.timers.run(3.0)
    assert len(world.written[NORMAL.name]) == 10_000
    assert world.timers.is_idle


def test_a_rate_that_the_links_of_a_site_share_comes_and_goes_while_bytes_wait() -> None:
    tokyo = BULK
    sydney = next(link for link in LANED.links if link.name == "paris-sydney")
    each = Rates(None, {tokyo.line_name: 10_000, sydney.line_name: 10_000}, LANED.lanes)
    world = World(each)
    world.writer(tokyo).write([bytes(1_000_000)])
    world.writer(sydney).write([bytes(1_000_000)])

    def sent(link: Link, until: float) -> int:
        before = len(world.written[link.name])
        world.timers.run(until)
        return len(world.written[link.name]) - before

    def both(until: float) -> int:
        before = sum(map(len, world.written.values()))
        world.timers.run(until)
        return sum(map(len, world.written.values())) - before

    assert both(10.0) == pytest.approx(200_000, rel=0.05)
    world.uplink.change(each._replace(site=5_000))
    assert both(30.0) == pytest.approx(100_000, rel=0.05)
    assert world.uplink.rate(sydney) == 5_000
    world.uplink.forget(tokyo)
    assert sent(sydney, 40.0) == pytest.approx(50_000, rel=0.05)
    world.uplink.change(each)
    assert sent(sydney, 50.0) == pytest.approx(100_000, rel=0.05)
    world.uplink.forget(sydney)
    assert world.timers.is_idle


def test_a_process_with_a_share_of_the_slots_has_that_part_of_the_rates(world: World) -> None:
    world.writer(BULK).write([bytes(1_000_000)])
    world.uplink.share = 0.25
    world.uplink.change(LIMITED)
    before = len(world.written[BULK.name])
    world.timers.run(10.0)
    assert len(world.written[BULK.name]) - before == pytest.approx(25_000, rel=0.05)
    world.uplink.share = 1.0
    world.uplink.change(LIMITED)
    world.timers.run(20.0)
    assert len(world.written[BULK.name]) - before == pytest.approx(125_000, rel=0.05)


def test_the_rates_are_those_of_the_hour_and_of_the_links_out_of_the_site() -> None:
    mesh = mesh_of(
        'max_rate: {default: 80kbit/s, "22:00-06:00": unlimited}\n'
        + TRIANGLE.replace("paris: {}", "paris: {max_rate: 160kbit/s}")
    )
    assert rates_at(mesh, "paris", 12 * 60) == Rates(
        20_000, {"paris-tokyo": 10_000, "paris-sydney": 10_000}
    )
    assert rates_at(mesh, "paris", 23 * 60) == Rates(
        20_000, {"paris-tokyo": None, "paris-sydney": None}
    )
    assert rates_at(mesh, "tokyo", 0).site is None


def test_the_minute_of_the_day_is_that_of_the_clock_on_the_wall() -> None:
    day_ms = 24 * 3600 * 1000
    # Whatever the zone: a day later it is the same, a minute later the next.
    for wall_ms in (0, 1_767_225_600_000):
        first = minute_of_day(wall_ms)
        assert 0 <= first < 24 * 60
        assert minute_of_day(wall_ms + day_ms) == first
        assert minute_of_day(wall_ms + 60_000) == (first + 1) % (24 * 60)
