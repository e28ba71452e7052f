"""Search ledger files for single messages and batches, without Spark.

Identities are searched for as bytes in the packed column, file after file; only rows with a match
are opened. Files may lie on any file system that pyarrow reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.ledger.rows import IDENTITY_BYTES
from spark_audit.judge.expectation import Revisions
from spark_audit.ledgers.files import LedgerPath, ledger_path, slot_number, without_copies

Row = dict[str, Any]
"""Ledger row by the columns of `relay.ledger.columns.parquet_schema`."""


class LedgerNotFound(Exception):
    """No ledger at this place, or the place cannot be reached."""


@dataclass(slots=True)
class LedgerSearch:
    """Ledgers below one folder. `bad`: file -> reason why it could not be read."""

    system: Any
    files: list[LedgerPath]
    revisions: Revisions
    sites: list[str]
    say: Callable[[str], None] = lambda text: None
    bad: dict[str, str] = field(default_factory=dict)
    searched: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, root: str, say: Callable[[str], None] = lambda text: None) -> LedgerSearch:
        """List the ledgers. Raises LedgerNotFound."""
        from pyarrow import ArrowException, fs

        try:
            if "://" in root or root.startswith("file:"):
                system, top = fs.FileSystem.from_uri(_uri(root))
            else:
                system, top = fs.LocalFileSystem(), root
            folders = _folders(system, top)
            files, documents = [], []
            for folder in folders:
                site = folder.rsplit("/", 1)[-1]
                nodes = [node.path for node in _listed(system, f"{folder}/nodes")]
                for slot, ledger in [(0, folder), *_ledgers(system, [folder, *nodes])]:
                    files += _files(system, ledger, site, slot)
                    documents += list(_documents(system, ledger, site))
        except (OSError, ValueError, ArrowException) as error:
            raise LedgerNotFound(f"{root}: {error}") from error
        sites = sorted(folder.rsplit("/", 1)[-1] for folder in folders)
        files.sort(key=lambda file: file.uri)
        return cls(system, without_copies(files), Revisions.read(documents), sites, say)

    def of_stage(self, *stages: str, dates: tuple[str, str] = ("", "9")) -> list[LedgerPath]:
        """Return files that may hold rows of these stages; `dates`: first and last, inclusive."""
        return [
            file
            for file in self.files
            if (not file.stage or file.stage in stages) and dates[0] <= file.date <= dates[1]
        ]

    def having(
        self, stage: str, identities: Collection[bytes], dates: tuple[str, str]
    ) -> Iterator[tuple[Row, list[int]]]:
        """Yield rows that have one of these identities, with its places in the row."""
        files = self.of_stage(stage, dates=dates)
        for number, path in enumerate(files):
            self.say(f"{stage}: file {number + 1} of {len(files)}, {path.site} {path.date}")
            yield from self._attempt(path, lambda one: self._having(one, stage, identities))

    def matching(
        self, files: Sequence[LedgerPath], columns: Sequence[str] | None, conditions: list[Any]
    ) -> Iterator[Row]:
        """Yield rows that meet pyarrow's conditions; `columns`: None for all."""
        import pyarrow.parquet as pq

        def read(path: LedgerPath) -> list[Row]:
            # A single file, not a data set: `date=` in its path is no column.
            table = pq.read_table(
                path.uri,
                columns=list(columns) if columns else None,
                filters=conditions,
                filesystem=self.system,
                partitioning=None,
                page_checksum_verification=True,
            )
            rows: list[Row] = table.to_pylist()
            return rows

        for path in files:
            yield from self._attempt(path, read)

    def _attempt(self, path: LedgerPath, read: Callable[[LedgerPath], list[Any]]) -> list[Any]:
        """Read a file; an unreadable one is noted and does not end the search."""
        import pyarrow as pa

        if path.name in self.bad:
            return []
        try:
            found = read(path)
        except (pa.ArrowException, OSError) as error:
            self.bad[path.name] = str(error).splitlines()[0]
            return []
        self.searched.add(path.name)
        return found

    def _having(
        self, path: LedgerPath, stage: str, identities: Collection[bytes]
    ) -> list[tuple[Row, list[int]]]:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        found = []
        with pq.ParquetFile(
            path.uri, filesystem=self.system, page_checksum_verification=True
        ) as file:
            for group in range(file.num_row_groups):
                column = file.read_row_group(group, columns=["identities"])["identities"]
                masks = [
                    pc.greater_equal(pc.find_substring(column, pattern=identity), 0)
                    for identity in identities
                ]
                if not any(pc.any(mask).as_py() for mask in masks):
                    continue
                for row in file.read_row_group(group).to_pylist():
                    if row["stage"] == stage and (at := places(row["identities"], identities)):
                        found.append((row, at))
        return found


def places(packed: bytes | None, identities: Collection[bytes]) -> list[int]:
    """Return the entries of a packed column that have one of these identities."""
    found = []
    for identity in identities:
        at = (packed or b"").find(identity)
        while packed and at >= 0:
            if at % IDENTITY_BYTES == 0:
                found.append(at // IDENTITY_BYTES)
            at = packed.find(identity, at + 1)
    return sorted(found)


def _uri(root: str) -> str:
    """Return pyarrow's form of Spark's s3a URIs and local paths."""
    if root.startswith("file:") and not root.startswith("file://"):
        return "file://" + root.removeprefix("file:")
    return "s3://" + root.removeprefix("s3a://") if root.startswith("s3a://") else root


def _listed(system: Any, folder: str) -> list[Any]:
    from pyarrow import fs

    listed: list[Any] = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return listed


def _folders(system: Any, top: str) -> list[str]:
    from pyarrow import fs

    if system.get_file_info(top).type is not fs.FileType.Directory:
        raise LedgerNotFound(f"{top}: there is no such folder")
    return [one.path for one in _listed(system, top) if one.type is fs.FileType.Directory]


def _ledgers(system: Any, folders: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the ledgers of the slots in the folders of a site and its nodes, with the slots."""
    for folder in folders:
        yield 0, f"{folder}/ledger"
        for found in _listed(system, f"{folder}/slots"):
            slot = slot_number(found.path.rsplit("/", 1)[-1])
            if slot is not None:
                yield slot, f"{found.path}/ledger"


def _files(system: Any, ledger: str, site: str, slot: int) -> list[LedgerPath]:
    return [
        ledger_path(file.path, file.size, site, slot)
        for date in _listed(system, ledger)
        if date.base_name.startswith("date=")
        for file in _listed(system, date.path)
        if file.base_name.endswith(".parquet") and not file.base_name.startswith(".")
    ]


def _documents(system: Any, ledger: str, site: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in _listed(system, f"{ledger}/revisions"):
        if file.base_name.endswith(".json"):
            with system.open_input_stream(file.path) as source:
                content = source.read()
            try:
                yield site, json.loads(content)
            except ValueError:
                # `Revisions` reports the empty document as unreadable.
                yield site, {}
