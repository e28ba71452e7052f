"""Bodies for a measurement that look like a shop's receipts, as JSON."""

from __future__ import annotations

import json
import random

from isthmus.load.messages import HEAD_BYTES

_TOWNS = ("Berlin", "Hamburg", "Leipzig", "Bremen", "Kassel", "Trier", "Passau", "Jena", "Ulm")
_GOODS = (
    "espresso beans",
    "oat milk",
    "rye bread",
    "pear juice",
    "goat cheese",
    "olive oil",
    "paper cups",
    "dish soap",
    "tomato paste",
    "apple cake",
    "sparkling water",
    "sea salt",
    "green tea",
)
_TENDERS = ("card", "cash", "voucher", "app")


class ShopDocuments:
    """Receipts of a shop as JSON, about `size` bytes each, drawn by `seed`.

    `kinds` documents are made beforehand and come in turn: a receipt comes again long after what a
    batch's compression sees, under another head.
    """

    def __init__(self, size: int = 1024, seed: int = 1, kinds: int = 20_000) -> None:
        draw = random.Random(seed)
        self._documents = [_receipt(draw, size - HEAD_BYTES) for _ in range(kinds)]
        self._next = 0

    @property
    def mean_bytes(self) -> int:
        return HEAD_BYTES + sum(map(len, self._documents)) // len(self._documents)

    def take(self, count: int) -> list[bytes]:
        documents, kinds = self._documents, len(self._documents)
        taken = [documents[number % kinds] for number in range(self._next, self._next + count)]
        self._next += count
        return taken


def _receipt(draw: random.Random, size: int) -> bytes:
    receipt: dict[str, object] = {
        "type": "sale",
        "version": 3,
        "receipt": f"{draw.getrandbits(64):016x}",
        "store": {"id": draw.randrange(1000), "town": draw.choice(_TOWNS)},
        "till": draw.randrange(1, 9),
        "cashier": f"c{draw.randrange(4000):04}",
        "at": f"2026-03-{draw.randrange(1, 29):02}T{draw.randrange(8, 20):02}:"
        f"{draw.randrange(60):02}:{draw.randrange(60):02}.{draw.randrange(1000):03}Z",
        "tender": draw.choice(_TENDERS),
        "card": f"{draw.getrandbits(80):020x}",
    }
    lines: list[dict[str, object]] = []
    receipt["lines"] = lines
    total = 0
    written = b""
    while len(written) < size - 40:
        price, quantity = draw.randrange(49, 2999), draw.randrange(1, 6)
        total += price * quantity
        lines.append(
            {
                "sku": f"{draw.randrange(10**13):013}",
                "name": draw.choice(_GOODS),
                "quantity": quantity,
                "price_cents": price,
                "tax": draw.choice((7, 19)),
            }
        )
        receipt["total_cents"] = total
        written = json.dumps(receipt, separators=(",", ":")).encode()
    return written
