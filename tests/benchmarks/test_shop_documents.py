"""Receipts of a shop are distinct, alike for a seed, and as compressible as such documents are."""

from __future__ import annotations

import json

import zstandard

from benchmarks.compare.shop_documents import ShopDocuments


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
