"""Small files that are replaced whole, and stamps that show a change.

After a crash a reader finds the old file or the new file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

OWNER_ONLY = 0o600
ANYBODY = 0o666
"""Mode of a file, before the process's umask."""


def write(file: Path, text: str, *, durable: bool = False, mode: int = ANYBODY) -> None:
    """Replace `file` by a file with this text. `durable`: on the disk, under its name, upon return;
    otherwise safe from the end of the process but not from a power cut. Raises OSError.
    """
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)  # the new file has its mode from the start
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        if durable:
            os.fsync(out.fileno())
    temporary.replace(file)
    if durable:
        sync(file.parent)


def sync(path: Path) -> None:
    """Bring a file, or a folder's names, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileStamp(NamedTuple):
    """Stamp of a file, different after any change: times in ns, size in bytes, inode and device."""

    changed_ns: int
    """Time of the inode's last change: a copy may bear its source's time of modification."""
    modified_ns: int
    size: int
    inode: int
    device: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> FileStamp | None:
        """Return the stamp of the present file, or None if there is no visible file."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
