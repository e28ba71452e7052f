"""List the ledger files of all sites, on any file system, and read the revision documents.

Below LEDGER: SITE/ledger/date=YYYY-MM-DD/STAGE-STATE-FIRST-LAST.parquet and
SITE/ledger/revisions/REVISION.json, as nodes keep them; a copy may leave `ledger/` out. Of a site
with several nodes, each has its files in SITE/nodes/NODE/ledger; of several slots, each but the
first has its files in slots/N/ledger below its site or node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEDGERS = {
    "*/ledger": (-4, None),
    "*": (-3, None),
    "*/nodes/*/ledger": (-6, None),
    "*/slots/*/ledger": (-6, -4),
    "*/nodes/*/slots/*/ledger": (-8, -4),
}
"""Pattern of a ledger -> places of the site's name and of the slot's number in the path of a file
of the ledger; None: the first slot's."""
_NAME = re.compile(r"(packed|linked_out|linked_in|delivered)-([0-9a-f]+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class LedgerPath:
    """Ledger file. `stage`, `first` and `last` (inclusive) come from its name, if it is well
    formed.
    """

    site: str
    date: str
    uri: str
    size: int
    stage: str = ""
    first: int = -1
    last: int = -1
    slot: int = 0

    @property
    def name(self) -> str:
        """Site, date and file name, for people."""
        return f"{self.site}/date={self.date}/{self.uri.rsplit('/', 1)[-1]}"


@dataclass(frozen=True, slots=True)
class LedgerListing:
    """Contents of the ledgers' folder."""

    sites: frozenset[str]
    """Sites that have a folder, with or without a ledger."""
    files: tuple[LedgerPath, ...]
    revisions: tuple[tuple[str, dict[str, Any]], ...]
    """(site, document) of every readable revision."""
    unreadable: tuple[str, ...]
    """Revision documents that could not be read."""
    older: frozenset[str] = frozenset()
    """Sites with a deliverer's files that are too old for `files`."""


def list_ledgers(spark: SparkSession, root: str, from_date: str) -> LedgerListing:
    """List `root` (a path or URI of any file system that Spark reads): files of `from_date` and
    later.
    """
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(root)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    root = root.rstrip("/")

    def found(pattern: str) -> list[Any]:
        return list(system.globStatus(jvm.org.apache.hadoop.fs.Path(f"{root}/{pattern}")) or ())

    sites = frozenset(one.getPath().getName() for one in found("*") if one.isDirectory())
    files, older = [], set()
    for ledger, (place, of_slot) in _LEDGERS.items():
        for status in found(f"{ledger}/date=*/*.parquet"):
            uri = status.getPath().toString()
            parts = uri.split("/")
            slot = 0 if of_slot is None else slot_number(parts[of_slot])
            if slot is None:
                continue
            file = ledger_path(uri, status.getLen(), parts[place], slot)
            if file.date >= from_date:
                files.append(file)
            elif file.stage in ("", "delivered"):
                older.add(file.site)
    revisions, unreadable = [], []
    for ledger, (place, _) in _LEDGERS.items():
        for status in found(f"{ledger}/revisions/*.json"):
            uri = status.getPath().toString()
            site = uri.split("/")[place]
            try:
                revisions.append((site, json.loads(_text(jvm, system, status.getPath()))))
            except ValueError as error:
                unreadable.append(f"{site}/revisions/{uri.rsplit('/', 1)[-1]}: {error}")
    return LedgerListing(
        sites,
        tuple(without_copies(sorted(files, key=lambda f: f.uri))),
        tuple(revisions),
        tuple(unreadable),
        frozenset(older),
    )


def without_copies(files: Iterable[LedgerPath]) -> list[LedgerPath]:
    """Return the files without those that another node of the site has exported as well: the rows
    decide a file's name and bytes.
    """
    found = {(file.name, file.size): file for file in reversed(list(files))}
    return list(reversed(found.values()))


def _text(jvm: Any, system: Any, path: Any) -> str:
    source = system.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(source, "UTF-8"))
    finally:
        source.close()


def slot_number(name: str) -> int | None:
    """Return the number of the slot that a folder is of, or None for any other folder."""
    return int(name) if name.isascii() and name.isdecimal() else None


def ledger_path(uri: str, size: int, site: str, slot: int = 0) -> LedgerPath:
    """Parse the folder and name of a site's file."""
    date = uri.split("/")[-2].removeprefix("date=")
    named = _NAME.fullmatch(uri.rsplit("/", 1)[-1])
    if named is None:
        return LedgerPath(site, date, uri, size, slot=slot)
    first, last = int(named[3]), int(named[4])
    return LedgerPath(site, date, uri, size, named[1], first, last, slot)
