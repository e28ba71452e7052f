"""Who was in which revision: told, kept, and what follows for batches that are for every site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from relay.ledger.members import BadMembers, RevisionMembers, decode_members, encode_members


def mesh(sites: str) -> Mesh:
    text = f"mesh: m\ntopology: complete\nexchanges: [{{name: orders}}]\nsites: {{{sites}}}\n"
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


TWO = mesh("a: {}, b: {cluster_id: bee}")
THREE = mesh("a: {}, b: {cluster_id: bee}, c: {}")


def members(folder: Path, *ran: Mesh) -> RevisionMembers:
    made = RevisionMembers(folder / "members.json")
    made.load(ran)
    return made


def test_sites_come_over_a_line_and_back() -> None:
    sites = {f"branch-{n}" for n in range(500)}
    assert decode_members(encode_members(sites)) == sites
    assert len(encode_members(sites)) < 2500


@pytest.mark.parametrize(
    "damaged",
    [b"", b"paris", encode_members(["a", "b"])[:-1], encode_members([""]), encode_members(["\n"])],
)
def test_what_names_no_sites_is_refused(damaged: bytes) -> None:
    with pytest.raises(BadMembers):
        decode_members(damaged)


def test_sites_that_take_no_end_are_refused() -> None:
    with pytest.raises(BadMembers, match="too many"):
        decode_members(encode_members(["x" * 2_000_000]))


def test_a_batch_for_every_site_is_not_for_those_that_joined_after_its_revision(
    tmp_path: Path,
) -> None:
    known = members(tmp_path, TWO, THREE)
    assert known.absent(THREE) == {TWO.revision: {"c"}}
    assert known.absent(TWO) == {}
    assert known.absent(mesh("a: {}, b: {cluster_id: bee}, c: {from: start}, d: {}")) == {
        TWO.revision: {"d"},
        THREE.revision: {"d"},
    }


def test_what_nobody_told_is_for_everybody_and_what_is_told_outlives_a_restart(
    tmp_path: Path,
) -> None:
    fresh = members(tmp_path, THREE)
    assert fresh.absent(THREE) == {}
    assert not fresh.knows("r0", 1)
    assert fresh.encoded("r0") is None
    assert fresh.learn("r0", encode_members(["a", "bee"]), 1)
    assert not fresh.learn("r0", encode_members(["a"]), 2)  # nor does it change: it is a hash
    for known in (fresh, members(tmp_path, THREE)):
        assert known.knows("r0", 3)
        assert known.absent(THREE) == {"r0": {"c"}}
        assert decode_members(known.encoded("r0") or b"") == {"a", "bee"}


def test_what_cannot_be_written_is_not_known(tmp_path: Path) -> None:
    known = RevisionMembers(tmp_path / "gone" / "members.json")
    known.load([THREE])
    with pytest.raises(OSError, match="No such file"):
        known.learn("r0", encode_members(["a"]), 1)
    assert not known.knows("r0", 1)


def test_a_file_that_cannot_be_read_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "members.json").write_text('{"revisions": {"r0": []}}')
    known = members(tmp_path, THREE)
    assert "cannot be read" in caplog.text
    assert known.learn("r0", encode_members(["a"]), 1)
    assert members(tmp_path).knows("r0", 1)


def test_what_no_batch_bears_any_more_is_forgotten_but_for_what_ran_here(tmp_path: Path) -> None:
    hour = 3_600_000
    known = members(tmp_path, TWO, THREE)
    known.learn("old", encode_members(["a"]), hour)
    known.learn("used", encode_members(["a"]), hour)
    assert known.knows("used", 10 * hour)  # written down, too: it is long since it was
    kept = json.loads((tmp_path / "members.json").read_text())["revisions"]
    assert kept["used"]["used_ms"] == 10 * hour
    known.forget_before(5 * hour)
    for now in (known, members(tmp_path, TWO, THREE)):
        assert not now.knows("old", 10 * hour)
        assert now.knows("used", 10 * hour)
        assert now.knows(TWO.revision, 10 * hour)


def test_a_lie_about_a_revision_ends_with_the_first_true_word_or_with_running_it(
    tmp_path: Path,
) -> None:
    known = members(tmp_path, THREE)
    four = mesh("a: {}, b: {cluster_id: bee}, c: {}, d: {}")
    assert known.learn(four.revision, encode_members(["liar"]), 1)
    assert known.absent(four)[four.revision] == {"a", "bee", "c", "d"}
    assert known.learn(four.revision, encode_members(["a", "bee", "c", "d"]), 2)
    assert known.absent(four) == {THREE.revision: {"d"}}
    other = mesh("a: {}, e: {}")
    assert known.learn(other.revision, encode_members(["liar"]), 3)
    known.runs(other)
    assert other.revision not in known.absent(other)


def test_more_revisions_than_there_can_be_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.ledger.members.MOST_ANNOUNCED", 3)
    known = members(tmp_path, THREE)
    for number in range(3):
        assert known.learn(f"made up {number}", encode_members(["a"]), 1)
    with pytest.raises(BadMembers, match="3 revisions"):
        known.learn("made up too", encode_members(["a"]), 1)
    assert known.learn("made up 0", encode_members(["b"]), 1)
