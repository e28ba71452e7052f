"""Partitions of an exchange: egress queues among which the broker spreads messages by a hash of
their routing keys, so that several slots of a site share one exchange. Pure.

All messages of a key are in one partition, at every site, so order and the barrier hold by key. The
partition of a batch is part of its lane's number, which sites that know nothing of partitions carry
with the normal lane:

    0     normal        203..217   normal, partitions 1 to 15
    1     urgent        218..232   urgent, partitions 1 to 15
    2     bulk          233..247   bulk, partitions 1 to 15
    3..202   lanes of other names, whose exchanges have no partitions

Partition 0 bears the lane's own number, and the names of an exchange without partitions.
"""

from __future__ import annotations

from federation.lanes import NUMBERS, lane_number

MOST_PARTITIONS = 16
PARTITIONED_LANES = tuple(NUMBERS)
"""Names of the lanes whose exchanges may have partitions."""
HASH_EXCHANGE = "x-modulus-hash"
"""Type of the broker's exchange that spreads messages over queues. The type `x-consistent-hash`
sends three quarters of the keys to other queues after the broker's first restart."""
_FIRST = 203
_FURTHER = MOST_PARTITIONS - 1
_NONE = range(1)


def partition_lane(lane: int, partition: int) -> int:
    """Return the number that stands in the names of batches of a partition of an exchange, given
    the number of the exchange's lane, or of any of its partitions.
    """
    own = base_lane(lane)
    return _FIRST + own * _FURTHER + partition - 1 if partition else own


def partition_of(lane: int) -> int:
    """Return the partition of a batch with this number of a lane."""
    return (lane - _FIRST) % _FURTHER + 1 if _is_further(lane) else 0


def base_lane(lane: int) -> int:
    """Return the number of the lane that a partition's batches belong to."""
    return (lane - _FIRST) // _FURTHER if _is_further(lane) else lane


def lane_numbers(lane: str) -> frozenset[int]:
    """Return the numbers of a lane and of all partitions in that lane."""
    own = lane_number(lane)
    partitions = range(MOST_PARTITIONS) if lane in PARTITIONED_LANES else _NONE
    return frozenset(partition_lane(own, partition) for partition in partitions)


def moved_to_lane(number: int, lane: int | None) -> int:
    """Return the number of a batch that goes in another lane than before, in the same partition;
    its own where `lane` is None, or is a lane that has no partitions.
    """
    partition = partition_of(number)
    if lane is None or (partition and lane not in NUMBERS.values()):
        return number
    return partition_lane(lane, partition)


def partition_name(exchange: str, partition: int) -> str:
    """Return the name of a partition, by which its egress queue and a packer's record know it: the
    exchange's for partition 0.
    """
    return f"{exchange}.p{partition}" if partition else exchange


def _is_further(lane: int) -> bool:
    return _FIRST <= lane < _FIRST + len(PARTITIONED_LANES) * _FURTHER
