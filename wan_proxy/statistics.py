"""Counts of a line."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class DirectionCounts:
    """Running counts of one direction of a line.

    `bytes_read` came from the sources; `bytes_delivered` went to the sinks' sockets;
    `bytes_dropped` were black-holed or died with their connection; the rest is in flight.
    """

    bytes_read: int = 0
    bytes_delivered: int = 0
    bytes_dropped: int = 0
    late_segments: int = 0


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """Copy of one direction's counts; `bytes_held` is in the proxy at present."""

    bytes_read: int
    bytes_delivered: int
    bytes_dropped: int
    late_segments: int
    bytes_held: int


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """Copy of a line's counts.

    `accepted` counts connections since the line was opened, `open` the present ones, `unreachable`
    the ones refused by the target.
    """

    accepted: int
    open: int
    unreachable: int
    outward: DirectionStatistics
    inward: DirectionStatistics

    def to_json(self) -> dict[str, Any]:
        """Return the object form for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "LineStatistics":
        """Read the object of `to_json`."""
        return cls(
            accepted=value["accepted"],
            open=value["open"],
            unreachable=value["unreachable"],
            outward=DirectionStatistics(**value["outward"]),
            inward=DirectionStatistics(**value["inward"]),
        )
