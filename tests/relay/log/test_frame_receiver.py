"""Frames come out of the receiver whole and in order, however the socket cuts them."""

from __future__ import annotations

import random

import pytest

from relay.log.rabbit.frame_receiver import KEPT_BYTES, READ_BYTES, FrameReceiver


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def feed(receiver: FrameReceiver, data: bytes, most: int) -> None:
    """Hand over the bytes as a socket would: at most `most` at once, and what there is room for."""
    at = 0
    while at < len(data):
        room = receiver.get_buffer(-1)
        assert len(room) > 0
        count = min(len(room), most, len(data) - at)
        room[:count] = data[at : at + count]
        receiver.buffer_updated(count)
        at += count


@pytest.mark.parametrize("seed", range(20))
async def test_frames_that_are_cut_anywhere_come_out_whole_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice((0, 1, 7, 300, 70_000, READ_BYTES, 3 * READ_BYTES)) for _ in range(40)]
    bodies = [chance.randbytes(size) for size in sizes]
    taken: list[bytes] = []
    receiver = FrameReceiver(lambda frame: taken.append(bytes(frame)))
    data = b"".join(map(frame_of, bodies))
    at = 0
    while at < len(data):
        piece = data[at : at + chance.choice((1, 3, 5, 4096, READ_BYTES, READ_BYTES + 1))]
        feed(receiver, piece, READ_BYTES)
        at += len(piece)
    assert taken == list(map(frame_of, bodies))
    assert not receiver.over.done()


async def test_a_chunk_of_megabytes_passes_and_its_memory_is_given_back() -> None:
    taken: list[int] = []
    receiver = FrameReceiver(lambda frame: taken.append(len(frame)))
    feed(receiver, frame_of(bytes(5 * KEPT_BYTES)), READ_BYTES)
    assert taken == [5 * KEPT_BYTES + 4]
    assert len(receiver.get_buffer(-1)) <= KEPT_BYTES


async def test_a_size_that_is_garbage_takes_no_more_memory_than_what_has_come() -> None:
    receiver = FrameReceiver(lambda frame: None)
    feed(receiver, b"\xff\xff\xff\xff" + bytes(READ_BYTES), READ_BYTES)
    assert len(receiver.get_buffer(-1)) <= 2 * READ_BYTES


async def test_an_error_over_a_frame_is_the_end_and_nothing_behind_is_taken() -> None:
    taken: list[bytes] = []

    def take(frame: memoryview) -> None:
        taken.append(bytes(frame))
        raise ValueError("out of step")

    receiver = FrameReceiver(take)
    feed(receiver, frame_of(b"one") + frame_of(bytes(READ_BYTES - 11)), READ_BYTES)
    feed(receiver, frame_of(b"three"), READ_BYTES)
    assert taken == [frame_of(b"one")]
    with pytest.raises(ValueError, match="out of step"):
        await receiver.over


@pytest.mark.parametrize("error", [None, ConnectionResetError("by peer")])
async def test_the_socket_s_end_is_the_end_with_its_error(error: Exception | None) -> None:
    receiver = FrameReceiver(lambda frame: None)
    receiver.connection_lost(error)
    assert receiver.over.exception() is error
    receiver.connection_lost(None)
