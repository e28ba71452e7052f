"""Condition of a line: delay, jitter, rate, queue and late segments, for each direction.

Values only; nothing here moves a byte. A preset is a short override of a transparent line.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Self

SEGMENT_BYTES = 1460
"""Payload of one TCP segment over an ordinary WAN (1500 less two headers of 20)."""


class ConditionError(ValueError):
    """Impossible condition, or one that would silently have no effect.

    `field` names the wrong setting, `value` is its value, `advice` says what to write instead.
    """

    def __init__(self, field: str, value: object, advice: str) -> None:
        super().__init__(f"{field}={value!r}: {advice}")
        self.field = field
        self.value = value
        self.advice = advice


@dataclass(frozen=True, slots=True)
class DirectionCondition:
    """Condition of one direction of a line.

    `delay_ms` is one way; each chunk takes up to `jitter_ms` more, and never overtakes another of
    its connection. All connections share `rate_bits_per_s` (None: no cap) and `queue_bytes`, the
    router's queue in front of the cap (None: one second of the rate). One read a connection may
    exceed the queue, so that every connection gets its turn. `window_bytes` bounds the bytes in
    flight of one connection, as TCP's window does. `late_fraction` of the segments arrive
    `late_by_ms` later (None: one round trip of the line), and hold up everything behind them.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_bits_per_s: float | None = None
    queue_bytes: int | None = None
    window_bytes: int = 4 * 1024 * 1024
    late_fraction: float = 0.0
    late_by_ms: float | None = None

    def __post_init__(self) -> None:
        for field in ("delay_ms", "jitter_ms"):
            if getattr(self, field) < 0:
                raise ConditionError(field, getattr(self, field), "give 0 or more milliseconds")
        if self.rate_bits_per_s is not None and self.rate_bits_per_s <= 0:
            raise ConditionError(
                "rate_bits_per_s", self.rate_bits_per_s, "give more than 0, or cut the line instead"
            )
        if self.queue_bytes is not None and self.queue_bytes <= 0:
            raise ConditionError("queue_bytes", self.queue_bytes, "give at least 1 byte")
        if self.window_bytes < SEGMENT_BYTES:
            raise ConditionError("window_bytes", self.window_bytes, "give at least one segment")
        if not 0 <= self.late_fraction < 1:
            raise ConditionError("late_fraction", self.late_fraction, "give 0 up to below 1")
        if self.late_by_ms is not None and self.late_by_ms <= 0:
            raise ConditionError("late_by_ms", self.late_by_ms, "give more than 0, or None")

    @property
    def is_transparent(self) -> bool:
        """True if bytes pass without delay, cap or late segments."""
        return (
            self.delay_ms == 0
            and self.jitter_ms == 0
            and self.rate_bits_per_s is None
            and self.late_fraction == 0
        )

    @property
    def queue_limit_bytes(self) -> int:
        """Size of the router's queue; without a rate, the window, since nothing queues."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        if self.rate_bits_per_s is None:
            return self.window_bytes
        return max(4 * SEGMENT_BYTES, int(self.rate_bits_per_s / 8))

    @property
    def read_bytes(self) -> int:
        """Bytes to read at once: 10 ms of the rate, so that a slow line trickles and its
        connections take turns; without a rate, enough to be worth a system call.
        """
        if self.rate_bits_per_s is None:
            return min(256 * 1024, self.window_bytes)
        return min(max(SEGMENT_BYTES, int(self.rate_bits_per_s / 800)), 64 * 1024)


@dataclass(frozen=True, slots=True)
class LineCondition:
    """Condition of both directions: `outward` from client to target, `inward` back."""

    outward: DirectionCondition = DirectionCondition()
    inward: DirectionCondition = DirectionCondition()

    def __post_init__(self) -> None:
        for name in ("outward", "inward"):
            way: DirectionCondition = getattr(self, name)
            if way.late_fraction and way.late_by_ms is None and self.round_trip_ms == 0:
                raise ConditionError(
                    f"{name}.late_fraction",
                    way.late_fraction,
                    "late by one round trip of 0 ms does nothing: give a delay or late_by_ms",
                )

    @classmethod
    def both_ways(
        cls,
        *,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        rate_bits_per_s: float | None = None,
        queue_bytes: int | None = None,
        window_bytes: int = 4 * 1024 * 1024,
        late_fraction: float = 0.0,
        late_by_ms: float | None = None,
    ) -> Self:
        """Return one condition for both directions; `delay_ms` is half of the round trip."""
        way = DirectionCondition(
            delay_ms=delay_ms,
            jitter_ms=jitter_ms,
            rate_bits_per_s=rate_bits_per_s,
            queue_bytes=queue_bytes,
            window_bytes=window_bytes,
            late_fraction=late_fraction,
            late_by_ms=late_by_ms,
        )
        return cls(way, way)

    @classmethod
    def named(cls, name: str) -> "LineCondition":
        """Return the preset of this name. Raise ConditionError, listing all names."""
        if name not in PRESETS:
            raise ConditionError("condition", name, f"use one of {', '.join(PRESETS)}")
        return PRESETS[name]

    @classmethod
    def from_json(cls, value: object) -> "LineCondition":
        """Read a preset's name, one object with the settings of both directions, or an object with
        `outward` and `inward`. Raise ConditionError.
        """
        if isinstance(value, str):
            return cls.named(value)
        if not isinstance(value, dict):
            raise ConditionError("condition", value, "give a preset's name or an object")
        if value.keys() & {"outward", "inward"}:
            unknown = value.keys() - {"outward", "inward"}
            if unknown:
                raise ConditionError("condition", sorted(unknown), "only outward and inward here")
            return cls(
                _direction_from_json("outward", value.get("outward", {})),
                _direction_from_json("inward", value.get("inward", {})),
            )
        way = _direction_from_json("condition", value)
        return cls(way, way)

    def to_json(self) -> dict[str, Any]:
        """Return the object form for `from_json`."""
        return {"outward": asdict(self.outward), "inward": asdict(self.inward)}

    @property
    def round_trip_ms(self) -> float:
        """Round trip in milliseconds, without jitter and queueing."""
        return self.outward.delay_ms + self.inward.delay_ms


def _direction_from_json(where: str, value: object) -> DirectionCondition:
    if not isinstance(value, dict):
        raise ConditionError(where, value, "give an object with delay_ms, rate_bits_per_s, ...")
    known = {field.name for field in fields(DirectionCondition)}
    for name, number in value.items():
        if name not in known:
            raise ConditionError(f"{where}.{name}", number, f"use {', '.join(sorted(known))}")
        if isinstance(number, bool) or not isinstance(number, int | float | None):
            raise ConditionError(f"{where}.{name}", number, "give a number")
    return DirectionCondition(**value)


LAN = LineCondition()
"""Loopback, with nothing added."""

METRO = LineCondition.both_ways(delay_ms=2, rate_bits_per_s=1e9)
"""Two data centres of one city."""

DSL_BRANCH = LineCondition.both_ways(delay_ms=15, jitter_ms=5, rate_bits_per_s=2e6)
"""A branch office: 2 Mbit/s both ways, round trip 30 ms."""

ISDN_64K = LineCondition.both_ways(delay_ms=20, rate_bits_per_s=64e3)
"""One B channel: 64 kbit/s, where a batch of 256 KiB takes 32 s."""

TRANSATLANTIC = LineCondition.both_ways(delay_ms=50, jitter_ms=2, rate_bits_per_s=300e6)
"""Round trip 100 ms."""

TRANSPACIFIC = LineCondition.both_ways(delay_ms=100, jitter_ms=4, rate_bits_per_s=300e6)
"""Round trip 200 ms."""

SATELLITE = LineCondition.both_ways(delay_ms=300, jitter_ms=10, rate_bits_per_s=20e6)
"""Geostationary: round trip 600 ms."""

LOSSY_MOBILE = LineCondition.both_ways(
    delay_ms=40, jitter_ms=40, rate_bits_per_s=5e6, late_fraction=0.01
)
"""Mobile uplink: one segment in a hundred is lost and sent again."""

PRESETS: Mapping[str, LineCondition] = MappingProxyType(
    {
        "LAN": LAN,
        "METRO": METRO,
        "DSL_BRANCH": DSL_BRANCH,
        "ISDN_64K": ISDN_64K,
        "TRANSATLANTIC": TRANSATLANTIC,
        "TRANSPACIFIC": TRANSPACIFIC,
        "SATELLITE": SATELLITE,
        "LOSSY_MOBILE": LOSSY_MOBILE,
    }
)
