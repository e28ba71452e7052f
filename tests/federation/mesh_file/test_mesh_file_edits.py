"""Whatever is typed into a mesh file or a table of branches, the reader says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation.mesh_file import Reading, parse_mesh
from federation.mesh_file.problem import Severity
from tests.federation.meshes import TRIANGLE

HUB = """\
mesh: m
topology: {hub: [head, dc]}
log: {max_bytes: 20GB, rate: 1KB/s}
exchanges:
  - {name: o, keys: [a.#], from: [head], to: [shops], never_via: [x]}
  - {name: p, type: direct, keys: [k], acks: remote, retry: {backoff: [1s, 2s]}}
sites: {head: {}, dc: {}}
branches:
  - names: [a, b]
    template: {tags: [shops], hub: [head], wants: {o: ["a.{site}.#"]}, availability: 0.9}
  - {file: t.csv, template: {hub: "{hub}", tags: [x]}}
include: more.yaml
"""
TREE = """\
mesh: m
topology: {tree: {root: a, children: {a: [b], b: [c]}}}
links: [{from: a, to: b, both: true, via: "h:1", availability: 0.5}]
sites: {a: {}, b: {}, c: {tls: {ca: x}, log: {on_full: gap}}, d: {parent: c}}
"""
TABLE = 'site,hub,note\nc,head,"a, b"\nd,dc,\n'
MORE = "sites: {e: {hub: dc}}\nbranches: {names: [f], template: {hub: head}}\n"
PIECES = [
    *(bytes([byte]) for byte in b"[]{}:,#&*!|>'\"%@`-? \n\t\r\x00\xff0a"),
    *(b": ", b"- ", b"&a ", b"*a", b"!!str ", b"<<: ", b"\xc2\x85", b"\xe2\x80\xa8", b"\n\n"),
    *(b"null", b"true", b"[]", b"{}", b"7", b"'x'", b"from", b"both: true", b"name: o"),
    *(b"{site}", b"{hub}", b"a", b"b", b"head", b"shops", b"x", b"sites", b"tags", b"hub: "),
]
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES)),
    min_size=1,
    max_size=4,
)


def edited(text: str, edits: list[tuple[float, int, bytes]]) -> bytes:
    data = text.encode()
    for part, length, piece in edits:
        start = int(part * len(data))
        data = data[:start] + piece + data[start + length :]
    return data


def check(reading: Reading) -> None:
    assert (reading.mesh is None) == any(p.severity is Severity.ERROR for p in reading.problems)
    for problem in reading.problems:
        assert problem.wrong
        assert problem.mend
        assert problem.line >= 1
        assert problem.column >= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "more.yaml").write_text(MORE)
    assert parse_mesh(HUB.encode(), "mesh.yaml", tmp_path).problems == ()
    return tmp_path


FUZZ = settings(
    derandomize=True,
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("text", [TRIANGLE, HUB, TREE], ids=["ring", "hub", "tree"])
@FUZZ
@given(edits=EDITS)
def test_no_text_makes_the_reader_fall_over(
    folder: Path, text: str, edits: list[tuple[float, int, bytes]]
) -> None:
    check(parse_mesh(edited(text, edits), "mesh.yaml", folder))


@pytest.mark.parametrize(("name", "text"), [("t.csv", TABLE), ("more.yaml", MORE)])
@FUZZ
@given(edits=EDITS)
def test_nor_does_any_table_or_included_file(
    folder: Path, name: str, text: str, edits: list[tuple[float, int, bytes]]
) -> None:
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(edited(text, edits))
    check(parse_mesh(HUB.encode(), "mesh.yaml", folder))
    (folder / name).write_bytes(before)
