"""Stamp of a file, which is another one once the file has changed."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Times in ns, size in bytes, and which file of which device stands under the name."""

    changed_ns: int
    """Time of the inode's last change: a copy may bear its source's time of modification."""
    modified_ns: int
    size: int
    inode: int
    device: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> FileStamp | None:
        """Stamp of the file as it is now; None where there is none, or none that can be seen."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
