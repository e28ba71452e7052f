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
        if site.tls is None:
            continue
        files = (
            ("ca", site.tls.ca),
            ("certificate", site.tls.certificate),
            ("key", site.tls.private_key),
        )
        for key, path in files:
            if path is None or (folder / path).is_file():
                continue
            yield Violation(
                ("sites", name, "tls", key),
                f"there is no file {path} here",
                "nodes that connect to this broker need it; the path is relative to the file that "
                "names it",
                severity=Severity.WARNING,
            )
