"""Looks through files of a site's ledger for deliveries, in a process of its own: pyarrow and numpy
never give their memory back.

    python -m relay.delivered_files < JSON

Input: `{"files": [...], "identities": [...]}`; output: for each delivery exchange, origin, identity
and content, a list of lists.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from relay.ledger.rows import IDENTITY_BYTES
from relay.ledger_proof import Sought, deliveries_in

_ROWS_AT_ONCE = 1024
_COLUMNS = ["exchange", "origin", "kind", "position", "identities", "contents", "outcomes"]


def look_through(files: Iterable[Path], identities: frozenset[bytes]) -> set[Sought]:
    """Deliveries of messages of these identities."""
    import numpy as np
    import pyarrow.parquet as pq

    heads = np.sort(np.frombuffer(b"".join(identities), np.uint64)[:: IDENTITY_BYTES // 8])
    found: set[Sought] = set()
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=_COLUMNS):
            columns = [batch.column(name) for name in _COLUMNS]
            for nth, packed in enumerate(columns[4]):
                if not packed.is_valid:
                    continue
                data = packed.as_py()
                mine = np.frombuffer(data, np.uint64)[:: IDENTITY_BYTES // 8]
                numbers = [
                    number
                    for number in map(int, np.flatnonzero(np.isin(mine, heads)))
                    if data[IDENTITY_BYTES * number : IDENTITY_BYTES * (number + 1)] in identities
                ]
                if not numbers:
                    continue
                exchange, origin, kind, position = (c[nth].as_py() for c in columns[:4])
                contents, outcomes = columns[5][nth].as_py() or b"", columns[6][nth].as_py() or b""
                publisher = position if kind == "repair" else origin
                found.update(deliveries_in(exchange, publisher, data, contents, outcomes, numbers))
    return found


def main() -> None:
    os.nice(5)  # relaying goes before
    request = json.loads(sys.stdin.buffer.read())
    found = look_through(
        map(Path, request["files"]), frozenset(map(bytes.fromhex, request["identities"]))
    )
    deliveries = [
        (one.exchange, one.origin, one.identity.hex(), one.content.hex()) for one in found
    ]
    print(json.dumps(deliveries))


if __name__ == "__main__":
    main()
