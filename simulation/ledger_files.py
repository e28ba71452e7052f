"""A site's ledger files in a simulation: the rows that they would have, by path."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from io import BytesIO

from relay.ledger.file import LedgerFile, file_frame, frames
from relay.ledger.file_writer import FileWriter, FileWriters
from relay.ledger.rows import LedgerRow, decode_row


class LedgerFiles(FileWriters):
    """Keeps what is exported, instead of a process that writes Parquet."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}

    def rows(self) -> Iterator[LedgerRow]:
        """Of all files, in the order in which they were made."""
        for content in self._files.values():
            yield from map(decode_row, frames(BytesIO(content)))

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        yield _Keeping(self._files)


class _Keeping(FileWriter):
    """A file is there once it is finished, whole."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._unfinished: dict[str, list[bytes]] = {}

    async def send(self, file: LedgerFile, data: bytes) -> None:
        if data != file_frame(file):
            self._unfinished.setdefault(file.path, []).append(data)

    async def finished(self, file: LedgerFile) -> None:
        self._files[file.path] = b"".join(self._unfinished.pop(file.path, []))
