"""Reading of the mesh file: its keys, its rules, and the mesh they declare, or all problems."""

from __future__ import annotations

from federation.brokers.credentials import PasswordMissing, resolve_password
from federation.mesh_file.problem import MeshFileError, Problem, Severity
from federation.mesh_file.reading import Reading, load_mesh, parse_mesh, read_mesh

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
