"""Reading the mesh file: its keys, its rules, what it comes to; or all that is wrong with it."""

from __future__ import annotations

from federation.mesh_file.reading import (
    MeshFileError,
    PasswordMissing,
    Problem,
    Reading,
    Severity,
    load_mesh,
    parse_mesh,
    read_mesh,
    resolve_password,
)

__all__ = [
    "MeshFileError",
    "PasswordMissing",
    "Problem",
    "Reading",
    "Severity",
    "load_mesh",
    "parse_mesh",
    "read_mesh",
    "resolve_password",
]
