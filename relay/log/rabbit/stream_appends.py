"""Appends of a connection to a stream: cut into frames, bounded, matched with their confirms.

Publishing IDs are dense in a connection and serve only to match confirms, which may come out of
order; submissions are answered in their own order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.log.rabbit import stream_frames
from relay.log.site_log import MAX_UNCONFIRMED_BYTES, LogRefused, SiteLogError


@dataclass(slots=True)
class _Submission:
    records: Sequence[bytes]
    done: Callable[[SiteLogError | None], None]
    written: int = 0
    last_id: int = -1


class StreamAppends:
    """Appends over `send`, which takes frames of up to `frame_bytes`."""

    def __init__(self, publisher: int, frame_bytes: int, send: Callable[[bytes], None]) -> None:
        self._publisher = publisher
        self._frame_bytes = frame_bytes
        self._send = send
        self._queue: deque[_Submission] = deque()
        self._written: deque[_Submission] = deque()
        self._costs: deque[int] = deque()
        self._unconfirmed_bytes = 0
        self._next_id = 0
        self._next_confirm = 0
        self._confirmed_early: set[int] = set()

    @property
    def max_record_bytes(self) -> int:
        """Bytes of the largest record that fits a frame."""
        return (
            self._frame_bytes
            - stream_frames.PUBLISH_OVERHEAD_BYTES
            - stream_frames.MESSAGE_OVERHEAD_BYTES
        )

    def submit(self, records: Sequence[bytes], done: Callable[[SiteLogError | None], None]) -> None:
        """Append; `done` is called once. Raises LogRefused for a record that is too large."""
        most = self.max_record_bytes
        for record in records:
            if len(record) > most:
                raise LogRefused(f"a record of {len(record)} bytes, the broker takes {most}")
        if not records:
            raise ValueError("no records")
        self._queue.append(_Submission(records, done))
        self._write_what_fits()

    def _write_what_fits(self) -> None:
        frame: list[bytes] = []
        frame_bytes = stream_frames.PUBLISH_OVERHEAD_BYTES
        while self._queue:
            submission = self._queue[0]
            while submission.written < len(submission.records):
                record = submission.records[submission.written]
                cost = len(record) + stream_frames.MESSAGE_OVERHEAD_BYTES
                unconfirmed = self._unconfirmed_bytes
                if unconfirmed and unconfirmed + cost > MAX_UNCONFIRMED_BYTES:
                    self._write(frame)
                    return
                if frame and frame_bytes + cost > self._frame_bytes:
                    self._write(frame)
                    frame = []
                    frame_bytes = stream_frames.PUBLISH_OVERHEAD_BYTES
                frame.append(record)
                frame_bytes += cost
                self._costs.append(cost)
                self._unconfirmed_bytes += cost
                submission.written += 1
            submission.last_id = self._next_id + len(frame) - 1
            self._written.append(self._queue.popleft())
        self._write(frame)

    def _write(self, frame: list[bytes]) -> None:
        if frame:
            self._send(stream_frames.publish_frame(self._publisher, self._next_id, frame))
            self._next_id += len(frame)

    def on_confirm(self, ids: Sequence[int]) -> None:
        """Take confirms: call `done` of whole submissions, then write what fits now."""
        next_confirm = self._next_confirm
        for publishing_id in ids:
            if publishing_id == next_confirm:
                next_confirm += 1
                self._unconfirmed_bytes -= self._costs.popleft()
            else:
                self._confirmed_early.add(publishing_id)
        while next_confirm in self._confirmed_early:
            self._confirmed_early.discard(next_confirm)
            next_confirm += 1
            self._unconfirmed_bytes -= self._costs.popleft()
        self._next_confirm = next_confirm
        while self._written and self._written[0].last_id < next_confirm:
            self._written.popleft().done(None)
        if self._queue:
            self._write_what_fits()

    def fail(self, error: Callable[[], SiteLogError]) -> None:
        """End all submissions, each with an error of its own."""
        for submission in (*self._written, *self._queue):
            submission.done(error())
        self._written.clear()
        self._queue.clear()
