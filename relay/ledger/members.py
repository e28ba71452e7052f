"""Which sites each revision of the mesh has that batches of a site's log bear.

A batch for every site is for the sites of its revision: of the file that its origin knew when it
packed it. Whoever decides about a batch has to know them, also of revisions that it never ran. So a
link's sender tells them before the first batch of a session that bears a revision, and they are on
the disk before that batch is in the receiver's log: who has a batch knows its revision's sites.

FOLDER/members.json   {"format": 1, "revisions": {REVISION: {"used_ms", "sites": [CLUSTER ID]}}}

Beside the state folder, not in it: it is wanted for as long as the log is there, whatever becomes
of the state.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation import durable_file
from federation.mesh import Begins, Mesh

log = logging.getLogger(__name__)

Absent = Mapping[str, frozenset[str]]
"""Revision -> cluster IDs of sites that its batches for every site are not for."""

_FORMAT = 1
_MOST_BYTES = 256 * 1024
"""What the sites of one revision take at most, written out."""
MOST_TOLD = 1000
"""Revisions that neighbours have told of and this site never ran; files change less often."""
_NOTED_EVERY_MS = 3_600_000
"""How often it is written down that a revision is still in use."""


class BadMembers(ValueError):
    """These bytes name no sites."""


def encode_members(sites: Iterable[str]) -> bytes:
    """Cluster IDs, for a line."""
    return zlib.compress("\n".join(sorted(sites)).encode())


def decode_members(data: bytes) -> frozenset[str]:
    """What `encode_members` was given. Raises BadMembers."""
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
    """One site's."""

    file: Path
    _ran: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """Revisions that this site has run itself: kept elsewhere, whole."""
    _told: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _used_ms: dict[str, int] = field(default_factory=dict, init=False)
    """When a batch came last that bears it; of those in `_told`."""
    _noted_ms: int = field(default=0, init=False)

    def load(self, ran: Iterable[Mesh]) -> None:
        """Begin with what was kept, and the meshes that this site has run. Raises OSError."""
        for mesh in ran:
            self.runs(mesh)
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT:
                raise ValueError(f"it is of format {kept['format']}, not {_FORMAT}")
            for revision, said in kept["revisions"].items():
                self._told[revision] = frozenset(map(str, said["sites"]))
                self._used_ms[revision] = int(said["used_ms"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Links tell it again with the next batch that bears it.
            log.error("%s cannot be read: %r", self.file, error)

    def runs(self, mesh: Mesh) -> None:
        """This site runs, or ran, this revision."""
        self._ran[mesh.revision] = _members(mesh)

    def knows(self, revision: str, now_ms: int) -> bool:
        """Whether it is known; asked when a batch has come that bears it."""
        if revision in self._ran:
            return True
        if revision not in self._told:
            return False
        self._used_ms[revision] = now_ms
        if now_ms - self._noted_ms >= _NOTED_EVERY_MS:
            self._noted_ms = now_ms
            try:
                self._write()
            except OSError as error:
                log.error("%s is not up to date: %s", self.file, error)
        return True

    def learn(self, revision: str, encoded: bytes, now_ms: int) -> bool:
        """A neighbour tells the sites of a revision; whether that was news. It is on the disk when
        this returns. Raises BadMembers, OSError.
        """
        sites = decode_members(encoded)
        known = self._told.get(revision, frozenset())
        if revision in self._ran or sites <= known:
            return False
        if revision not in self._told and len(self._told) >= MOST_TOLD:
            raise BadMembers(f"{MOST_TOLD} revisions are kept that this site never ran")
        # Of two that tell otherwise one lies, or has an older word: a site too many costs some
        # bytes, one too few costs it messages.
        self._told[revision] = sites | known
        self._used_ms[revision] = now_ms
        try:
            self._write()
        except OSError:
            if known:
                self._told[revision] = known
            else:
                del self._told[revision], self._used_ms[revision]
            raise
        self._noted_ms = now_ms
        return True

    def encoded(self, revision: str) -> bytes | None:
        """The sites of a revision, for a line; None: they are not known."""
        sites = self._ran.get(revision) or self._told.get(revision)
        return None if sites is None else encode_members(sites)

    def absent(self, mesh: Mesh) -> dict[str, frozenset[str]]:
        """By revision: sites of the mesh that it lacks, and that do not begin at the start. Where
        nothing is known of a revision, its batches are for everybody.
        """
        now = frozenset(
            site.cluster_id for site in mesh.sites.values() if site.begins is Begins.NOW
        )
        return {
            revision: lacking
            for revision, sites in {**self._told, **self._ran}.items()
            if (lacking := now - sites)
        }

    def forget_before(self, time_ms: int) -> None:
        """Forget what no batch has borne since, but for what this site ran. Raises OSError."""
        gone = [revision for revision, used_ms in self._used_ms.items() if used_ms < time_ms]
        for revision in gone:
            del self._told[revision], self._used_ms[revision]
        if gone:
            self._write()

    def _write(self) -> None:
        content = {
            "format": _FORMAT,
            "revisions": {
                revision: {"used_ms": self._used_ms[revision], "sites": sorted(sites)}
                for revision, sites in self._told.items()
            },
        }
        durable_file.write(self.file, json.dumps(content, indent=1), durable=True)


def _members(mesh: Mesh) -> frozenset[str]:
    return frozenset(site.cluster_id for site in mesh.sites.values())
