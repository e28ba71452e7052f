"""Files in the folder of the tables, on whatever file system Spark reaches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RENAMES_OVER = ("hdfs", "viewfs")
"""File systems (besides this machine's) whose rename replaces a file in one step."""


@dataclass(slots=True)
class TableFiles:
    """URIs or paths, as Spark takes them."""

    spark: Any

    def under(self, pattern: str) -> list[str]:
        """What matches, sorted."""
        system, path = self._at(pattern)
        found = system.globStatus(path) or ()
        return sorted(str(one.getPath().toString()) for one in found)

    def exists(self, uri: str) -> bool:
        system, path = self._at(uri)
        return bool(system.exists(path))

    def delete(self, uri: str) -> None:
        """A file or a whole folder, if it is there."""
        system, path = self._at(uri)
        system.delete(path, True)

    def touch(self, uri: str) -> None:
        system, path = self._at(uri)
        system.create(path, True).close()

    def replace(self, source: str, target: str) -> None:
        """`target` is the old file until it is the new one, whole. On this machine and HDFS by a
        rename; on an object store by a copy, whose object appears when it is complete.
        """
        system, path = self._at(target)
        system.mkdirs(path.getParent())
        _, source_path = self._at(source)
        scheme = str(system.getUri().getScheme())
        if scheme == "file":
            # Past Hadoop's own checksums, which are files of their own: no rename moves both.
            goal = Path(str(path.toUri().getPath()))
            goal.with_name(f".{goal.name}.crc").unlink(missing_ok=True)
            os.replace(str(source_path.toUri().getPath()), goal)
        elif scheme in _RENAMES_OVER:
            self._rename(source_path, path)
        else:
            copied = self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                system, source_path, system, path, False, True, self._conf
            )
            if not copied:
                raise OSError(f"{source} could not be copied to {target}")

    def _rename(self, source: Any, target: Any) -> None:
        fs = self._jvm.org.apache.hadoop.fs
        rename = getattr(fs, "Options$Rename")
        how = self.spark.sparkContext._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        fs.FileContext.getFileContext(target.toUri(), self._conf).rename(source, target, how)

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    @property
    def _conf(self) -> Any:
        return self.spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        system = path.getFileSystem(self._conf)
        return system, system.makeQualified(path)
