"""Sites of each revision of the mesh that batches of a site's log bear.

A batch for every site is for the sites of its revision: of the mesh file by which its origin packed
the batch. A site that decides about a batch has to know these sites, also of revisions that it
never ran. So a link's sender announces them before the first batch of a session that bears a
revision, and they are on the disk before the batch is in the receiver's log: a site with a batch
knows its revision's sites.

FOLDER/members.json   {"format": 1, "revisions": {REVISION: {"used_ms", "sites": [CLUSTER ID]}}}

Beside the state folder, not in it: the file is needed for as long as the log exists, whatever
becomes of the state.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation import durable_file
from federation.mesh import Begins, Mesh

log = logging.getLogger(__name__)

Absent = Mapping[str, frozenset[str]]
"""Revision -> cluster IDs of sites that its batches for every site are not for."""

_FORMAT = 1
_MOST_BYTES = 256 * 1024
"""Limit of the sites of one revision, written out."""
MOST_ANNOUNCED = 1000
"""Limit of revisions that neighbours have announced and this site never ran; files change less
often.
"""
_NOTED_EVERY_MS = 3_600_000
"""Interval of writing down that a revision is still in use."""


class BadMembers(ValueError):
    """Bytes that name no sites."""


def encode_members(sites: Iterable[str]) -> bytes:
    """Encode cluster IDs for a link."""
    return zlib.compress("\n".join(sorted(sites)).encode())


def decode_members(data: bytes) -> frozenset[str]:
    """Decode the result of `encode_members`. Raises BadMembers."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, _MOST_BYTES)
        if not unpacking.eof:
            raise BadMembers("too many, or cut off")
        sites = frozenset(text.decode().split("\n"))
    except (zlib.error, UnicodeDecodeError) as error:
        raise BadMembers(str(error)) from error
    if "" in sites:
        raise BadMembers("a site without a name")
    return sites


@dataclass(slots=True)
class RevisionMembers:
    """Sites of all revisions that one site knows. `wrote` is called after each write of `file`."""

    file: Path
    wrote: Callable[[Path], None] = lambda _: None
    _ran: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """Revisions that this site has run itself: kept elsewhere, whole."""
    _announced: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _used_ms: dict[str, int] = field(default_factory=dict, init=False)
    """Time of the last batch that bears the revision; for those in `_announced`."""
    _noted_ms: int = field(default=0, init=False)

    def load(self, ran: Iterable[Mesh]) -> None:
        """Begin with what was kept, and the meshes that this site has run. Raises OSError."""
        for mesh in ran:
            self.runs(mesh)
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT:
                raise ValueError(f"it is of format {kept['format']}, not {_FORMAT}")
            for revision, content in kept["revisions"].items():
                self._announced[revision] = frozenset(map(str, content["sites"]))
                self._used_ms[revision] = int(content["used_ms"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Links announce a revision again with the next batch that bears it.
            log.error(
                "%s cannot be read: %r", self.file, error, extra={"event": "members-unreadable"}
            )

    def runs(self, mesh: Mesh) -> None:
        """Add a revision that this site runs, or ran."""
        self._ran[mesh.revision] = _members(mesh)

    def knows(self, revision: str, now_ms: int) -> bool:
        """True if the revision is known; asked when a batch has come that bears the revision."""
        if revision in self._ran:
            return True
        if revision not in self._announced:
            return False
        self._used_ms[revision] = now_ms
        if now_ms - self._noted_ms >= _NOTED_EVERY_MS:
            self._noted_ms = now_ms
            try:
                self._write()
            except OSError as error:
                log.error(
                    "%s is not up to date: %s",
                    self.file,
                    error,
                    extra={"event": "members-not-written"},
                )
        return True

    def learn(self, revision: str, encoded: bytes, now_ms: int) -> bool:
        """Keep the sites of a revision as a neighbour announces them; return True if they are news,
        and on the disk. Raises BadMembers, OSError.
        """
        sites = decode_members(encoded)
        known = self._announced.get(revision, frozenset())
        if revision in self._ran or sites <= known:
            return False
        if revision not in self._announced and len(self._announced) >= MOST_ANNOUNCED:
            raise BadMembers(f"{MOST_ANNOUNCED} revisions are kept that this site never ran")
        # Announcements may differ, by a lie or an older version: a site too many costs some bytes,
        # a site too few costs that site messages.
        self._announced[revision] = sites | known
        self._used_ms[revision] = now_ms
        try:
            self._write()
        except OSError:
            if known:
                self._announced[revision] = known
            else:
                del self._announced[revision], self._used_ms[revision]
            raise
        self._noted_ms = now_ms
        return True

    def encoded(self, revision: str) -> bytes | None:
        """Sites of a revision, encoded for a link, or None if unknown."""
        sites = self._ran.get(revision) or self._announced.get(revision)
        return None if sites is None else encode_members(sites)

    def absent(self, mesh: Mesh) -> dict[str, frozenset[str]]:
        """Sites of the mesh that a revision lacks, and that do not begin at the start, by revision.
        Batches of an unknown revision are for everybody.
        """
        now = frozenset(
            site.cluster_id for site in mesh.sites.values() if site.begins is Begins.NOW
        )
        return {
            revision: lacking
            for revision, sites in {**self._announced, **self._ran}.items()
            if (lacking := now - sites)
        }

    def forget_before(self, time_ms: int) -> None:
        """Forget revisions that no batch has borne since, except those that this site ran. Raises
        OSError.
        """
        gone = [revision for revision, used_ms in self._used_ms.items() if used_ms < time_ms]
        for revision in gone:
            del self._announced[revision], self._used_ms[revision]
        if gone:
            self._write()

    def _write(self) -> None:
        content = {
            "format": _FORMAT,
            "revisions": {
                revision: {"used_ms": self._used_ms[revision], "sites": sorted(sites)}
                for revision, sites in self._announced.items()
            },
        }
        durable_file.write(self.file, json.dumps(content, indent=1), durable=True)
        self.wrote(self.file)


def _members(mesh: Mesh) -> frozenset[str]:
    return frozenset(site.cluster_id for site in mesh.sites.values())
