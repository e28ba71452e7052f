"""What a line counts."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class DirectionCounts:
    """Counted while running by one direction of a line.

    `bytes_read` came from its sources; `bytes_delivered` were handed to the sinks' sockets;
    `bytes_dropped` were black-holed or died with their connection; the rest is under way.
    """

    bytes_read: int = 0
    bytes_delivered: int = 0
    bytes_dropped: int = 0
    late_segments: int = 0


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """A copy of one direction's counts; `bytes_held` is what the proxy itself holds now."""

    bytes_read: int
    bytes_delivered: int
    bytes_dropped: int
    late_segments: int
    bytes_held: int


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """A copy of a line's counts. `accepted` counts connections since the line was opened, `open`
    those there now, `unreachable` those whose target did not take them."""

    accepted: int
    open: int
    unreachable: int
    outward: DirectionStatistics
    inward: DirectionStatistics

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "LineStatistics":
        """The inverse of `to_json`."""
        return cls(
            accepted=value["accepted"],
            open=value["open"],
            unreachable=value["unreachable"],
            outward=DirectionStatistics(**value["outward"]),
            inward=DirectionStatistics(**value["inward"]),
        )
