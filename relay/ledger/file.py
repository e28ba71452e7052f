"""Ledger files: rows in, one Parquet file a range out. Runs as a short-lived process of its own.

    python -m relay.ledger.file < frames

pyarrow and numpy cost 70 MB and never give the memory back, so a node hands its rows to this
process and lets it end. Frames on standard input, for each file::

    4 + n   JSON: path, site, state, first, last (rows first..last, last exclusive)
    then for each row:  4 + n  the row as `rows` draws it

After each file that is on the disk under its name, a line with its path goes to standard output. A
file is written under a temporary name, synced, renamed, and its folder synced: a file with a name
is whole. The same rows give the same bytes. Input that ends too early leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple, TextIO

from federation import durable_file
from relay import crash_points
from relay.ledger.columns import ROWS_OF_A_GROUP, parquet_options, parquet_schema, parquet_values
from relay.ledger.fingerprint import fingerprints
from relay.ledger.rows import decode_row

_LENGTH = Struct("<I")
_ROWS_AT_ONCE = 256
"""Rows decoded at a time: 256 full ones are 8 MB as Python values."""


class LedgerFile(NamedTuple):
    """Path of a file, its site and state folder, and the numbers of its rows (`last` exclusive)."""

    path: str
    site: str
    state: str
    first: int
    last: int


class LedgerInputCut(Exception):
    """The node ended before it had handed over all rows of a file; the file was not made."""

    def __init__(self, file: LedgerFile, number: int) -> None:
        super().__init__(f"rows of {file.path} ended at {number}, before {file.last}")
        self.file = file
        self.number = number


def frame(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def file_frame(file: LedgerFile) -> bytes:
    """Frame that begins a file."""
    return frame(json.dumps(file._asdict()).encode())


def write_file(file: LedgerFile, rows: Iterator[bytes]) -> None:
    """Write the file of these encoded rows. Raises LedgerInputCut, BadLedgerRow, OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(file.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    schema = parquet_schema()
    with contextlib.ExitStack() as unless_named:
        unless_named.callback(temporary.unlink, missing_ok=True)
        with (
            temporary.open("wb") as target,
            pq.ParquetWriter(target, schema, **parquet_options()) as writer,
        ):
            crash_points.reach("file.begun")
            number, group = file.first, []
            while number < file.last:
                count = min(_ROWS_AT_ONCE, file.last - number)
                decoded = [decode_row(data) for data in islice(rows, count)]
                if len(decoded) < count:
                    raise LedgerInputCut(file, number + len(decoded))
                values = [
                    parquet_values(file.site, file.state, number + nth, row, fingerprint)
                    for nth, (row, fingerprint) in enumerate(
                        zip(decoded, fingerprints(decoded), strict=True)
                    )
                ]
                group.append(pa.Table.from_pylist(values, schema))
                number += count
                if number == file.last or sum(map(len, group)) >= ROWS_OF_A_GROUP:
                    writer.write_table(pa.concat_tables(group))
                    group.clear()
        durable_file.sync(temporary)
        crash_points.reach("file.synced")
        temporary.rename(path)
        unless_named.pop_all()
    durable_file.sync(path.parent)
    crash_points.reach("file.named")


def frames(source: BinaryIO) -> Iterator[bytes]:
    """Contents of the frames in `source`; a last one that is cut off is left out."""
    while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        data = source.read(size)
        if len(data) < size:
            return
        yield data


def write_files(source: BinaryIO, done: TextIO) -> None:
    """Write all files of the input; raises as `write_file`."""
    rows = frames(source)
    for head in rows:
        file = LedgerFile(**json.loads(head))
        write_file(file, rows)
        print(file.path, file=done, flush=True)


def main() -> None:
    os.nice(5)  # relaying goes before the ledger
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # spares numpy's thread pool
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        write_files(sys.stdin.buffer, sys.stdout)
    except (LedgerInputCut, ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
