"""Bodies are as big and as compressible as they say."""

from __future__ import annotations

import pytest
import zstandard

from isthmus.load.messages import HEAD_BYTES, Bodies, HalfRandom, Noise


@pytest.mark.parametrize("size", [HEAD_BYTES, 64, 1024, 200_000])
@pytest.mark.parametrize("kind", [Noise, HalfRandom])
def test_noise_has_the_size_that_was_asked_for(kind: type[Noise], size: int) -> None:
    bodies: Bodies = kind(size)
    tails = bodies.take(3)
    assert [HEAD_BYTES + len(tail) for tail in tails] == [size] * 3
    assert len(set(tails)) == (1 if size == HEAD_BYTES else 3)


def test_there_is_no_message_without_its_head() -> None:
    with pytest.raises(ValueError, match="32"):
        Noise(HEAD_BYTES - 1)


def test_half_random_compresses_to_half() -> None:
    batch = b"".join(HalfRandom(1024).take(256))
    assert 1.9 < len(batch) / len(zstandard.compress(batch, 3)) < 2.1
