"""Meshes for tests, from the text of a mesh file."""

from __future__ import annotations

import textwrap

from federation.mesh import Mesh
from federation.mesh_file import MeshFileError, Problem, parse_mesh
from federation.mesh_file.problem import Severity

FILE = "mesh.yaml"
LINE_OF_THREE = """\
mesh: acme
topology: {tree: a}
exchanges: [{name: orders}]
sites: {a: {}, b: {parent: a}, c: {parent: b}}
"""


def mesh_of(text: str) -> Mesh:
    """The mesh of that text; raises MeshFileError with all problems."""
    reading = parse_mesh(textwrap.dedent(text).encode(), FILE)
    if reading.mesh is None:
        raise MeshFileError(reading.problems)
    return reading.mesh


def problems_of(text: str | bytes) -> list[Problem]:
    """All problems of that text, warnings too. Text is dedented, bytes are taken as they are."""
    data = textwrap.dedent(text).encode() if isinstance(text, str) else text
    return list(parse_mesh(data, FILE).problems)


def errors_of(text: str | bytes) -> list[Problem]:
    return [problem for problem in problems_of(text) if problem.severity is Severity.ERROR]


TRIANGLE = """\
mesh: acme
topology: ring
both: true
exchanges:
  - {name: orders, keys: ["order.#"]}
sites: {paris: {}, tokyo: {}, sydney: {}}
"""
