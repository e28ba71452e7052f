"""Bodies are as big and as compressible as they say."""

from __future__ import annotations

import json

import pytest
import zstandard

from isthmus.load import HEAD_BYTES, Bodies, HalfRandom, Noise, ShopDocuments


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


def test_shop_documents_are_distinct_json_that_compresses_as_such_does() -> None:
    documents = ShopDocuments(seed=3, kinds=1000).take(1000)
    assert len(set(documents)) == 1000
    receipt = json.loads(documents[0])
    assert receipt["total_cents"] == sum(
        line["quantity"] * line["price_cents"] for line in receipt["lines"]
    )
    batch = b"".join(documents[:256])
    assert 4 <= len(batch) / len(zstandard.compress(batch, 3)) <= 6


def test_shop_documents_are_the_same_for_the_same_seed() -> None:
    assert ShopDocuments(seed=7, kinds=5).take(12) == ShopDocuments(seed=7, kinds=5).take(12)
    assert ShopDocuments(seed=7, kinds=5).take(5) != ShopDocuments(seed=8, kinds=5).take(5)
