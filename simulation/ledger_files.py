"""Ledger files of a simulated site, in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path

from relay.ledger.file import LedgerFile, file_frame, frames
from relay.ledger.file_writer import FileWriter, FileWriters
from relay.ledger.rows import LedgerRow, decode_row


class LedgerFiles(FileWriters):
    """Ledger files in memory, by path, instead of Parquet from a process."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}

    def rows(self) -> Iterator[LedgerRow]:
        """Yield the rows of all files, in the order of their making; of copies, which two nodes of
        a site may have made of a range, the rows of the first.
        """
        seen: dict[str, bytes] = {}
        for path, content in self._files.items():
            name = Path(path).name
            if name not in seen:
                seen[name] = content
                yield from map(decode_row, frames(BytesIO(content)))
            else:
                assert seen[name] == content, f"two ledger files differ, and are both {name}"

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        yield _Keeping(self._files)


class _Keeping(FileWriter):
    """Writer whose file exists, whole, once finished."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._unfinished: dict[str, list[bytes]] = {}

    async def send(self, file: LedgerFile, data: bytes) -> None:
        if data != file_frame(file):
            self._unfinished.setdefault(file.path, []).append(data)

    async def finished(self, file: LedgerFile) -> None:
        self._files[file.path] = b"".join(self._unfinished.pop(file.path, []))
