"""How far a link's receiver is behind: counted from running totals in headers, with no reading.

Each header carries its incarnation's running totals. The log's end has one total for each
incarnation, a link's position another; the difference, over all incarnations, is what the
receiver does not have yet. (What a filter would skip counts too until the link has come by.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from relay.batch import BatchHeader
from relay.link_metrics import Lag
from relay.link_position import Totals

_MOST_SAMPLES = 2048


class _End(NamedTuple):
    before: Totals
    """The totals before the first batch of the incarnation that was seen."""
    last: Totals


class LogTotals:
    """The end of one site's log: told of every batch that is appended, and of the log's tail at
    a start. One a node, shared by its links.
    """

    def __init__(self, most_incarnations: int = 4096) -> None:
        self._most = most_incarnations
        self._ends: OrderedDict[bytes, _End] = OrderedDict()
        self._messages = 0
        self._times: list[float] = []
        self._counts: list[int] = []

    def observe(self, header: BatchHeader, now: float) -> None:
        """One more batch stands in the log. `now` in seconds; must not go back."""
        key = header.name.series.incarnation
        totals = Totals(header.total_messages, header.total_bytes)
        end = self._ends.get(key)
        if end is None:
            before = Totals(totals.messages - header.entry_count, totals.bytes - header.byte_count)
            self._ends[key] = _End(before, totals)
            if len(self._ends) > self._most:
                self._ends.popitem(last=False)
        elif totals.messages >= end.last.messages:
            self._ends[key] = _End(end.before, totals)
            self._ends.move_to_end(key)
        if not self._times or now - self._times[-1] >= 1.0:
            self._times.append(now)
            self._counts.append(self._messages)
            if len(self._times) > _MOST_SAMPLES:
                # Old lags are told more coarsely, the last hour's to the second.
                self._times[: _MOST_SAMPLES // 2] = self._times[: _MOST_SAMPLES // 2 : 2]
                self._counts[: _MOST_SAMPLES // 2] = self._counts[: _MOST_SAMPLES // 2 : 2]
        self._messages += header.entry_count

    def lag(self, passed: Mapping[bytes, Totals], now: float) -> Lag:
        """What lies between a position with these totals and the end."""
        messages = nbytes = 0
        for key, end in self._ends.items():
            at = passed.get(key, end.before)
            if at.messages < end.last.messages:
                messages += end.last.messages - at.messages
                nbytes += max(0, end.last.bytes - at.bytes)
        return Lag(messages, nbytes, self._age(messages, now))

    def known(self, passed: Mapping[bytes, Totals]) -> dict[bytes, Totals]:
        """Of a position's totals those worth keeping: of incarnations that still matter here."""
        return {key: totals for key, totals in passed.items() if key in self._ends}

    def _age(self, messages: int, now: float) -> float:
        if not messages or not self._times:
            return 0.0
        # The last sample at which the log held no more than the receiver has by now.
        at = bisect_right(self._counts, max(0, self._messages - messages)) - 1
        return max(0.0, now - self._times[max(0, at)])
