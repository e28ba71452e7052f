"""Whether the files that sites name for TLS are here: the only rule that looks at the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.problems import Severity
from federation.mesh_file.violation import Violation


def missing_files(keys: MeshKeys, folder: Path) -> Iterator[Violation]:
    """A warning for each that is not here: a site's private key may rightly be on that site's
    machine only, and the mesh file on all.
    """
    for name, site in keys.sites.items():
        for section, keys_there, whose in (
            ("tls", site.tls, "nodes that connect to this broker need it"),
            ("admin", site.admin, "its node needs it, and those who ask it need `ca`"),
        ):
            if keys_there is None:
                continue
            files = (
                ("ca", keys_there.ca),
                ("certificate", keys_there.certificate),
                ("key", keys_there.private_key),
            )
            for key, path in files:
                if path is None or (folder / path).is_file():
                    continue
                yield Violation(
                    ("sites", name, section, key),
                    f"there is no file {path} here",
                    f"{whose}; the path is relative to the file that names it",
                    severity=Severity.WARNING,
                )
