"""Numbers and names of an exchange's partitions, and the slots that they are in."""

from __future__ import annotations

from federation.lanes import lane_number
from federation.names import Names
from federation.partitions import (
    MOST_PARTITIONS,
    PARTITIONED_LANES,
    base_lane,
    lane_numbers,
    moved_to_lane,
    partition_lane,
    partition_name,
    partition_of,
)
from federation.slots import ONE_SLOT, SlotMap

EVERY = [(lane_number(lane), n) for lane in PARTITIONED_LANES for n in range(MOST_PARTITIONS)]


def test_a_number_names_one_partition_of_one_lane() -> None:
    numbers = [partition_lane(*one) for one in EVERY]
    assert len(set(numbers)) == len(EVERY)
    assert max(numbers) <= 255
    assert [(base_lane(number), partition_of(number)) for number in numbers] == EVERY


def test_numbers_that_are_in_logs_never_change() -> None:
    assert [partition_lane(0, n) for n in (0, 1, 15)] == [0, 203, 217]
    assert [partition_lane(lane, 1) for lane in (1, 2)] == [218, 233]


def test_numbers_of_lanes_with_other_names_are_of_no_partition() -> None:
    drawn = {lane_number(f"lane{number}") for number in range(2000)}
    assert len(drawn) == 200
    assert {partition_of(number) for number in drawn} == {0}
    assert all(base_lane(number) == number for number in drawn)
    assert lane_numbers("lane1") == {lane_number("lane1")}
    assert lane_numbers("bulk") == {2, *range(233, 248)}


def test_a_batch_that_is_sent_again_in_another_lane_stays_in_its_partition() -> None:
    normal = partition_lane(0, 3)
    assert moved_to_lane(normal, 2) == partition_lane(2, 3)
    assert moved_to_lane(normal, None) == normal
    archive = lane_number("archive")
    assert moved_to_lane(normal, archive) == normal
    assert moved_to_lane(0, archive) == archive


def test_the_first_partition_has_the_names_of_an_exchange_without_partitions() -> None:
    names = Names("acme")
    assert partition_name("orders", 0) == "orders"
    assert names.egress("orders", 0) == names.egress("orders")
    assert names.egress("orders", 12) == "isthmus.acme.egress.orders.p12"


def test_partitions_of_an_exchange_are_in_consecutive_slots() -> None:
    slots = SlotMap(4)
    first = slots.of("orders")
    assert [slots.of("orders", n) for n in range(8)] == [(first + n) % 4 for n in range(8)]
    assert {ONE_SLOT.of("orders", n) for n in range(8)} == {0}
