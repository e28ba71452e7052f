"""Small files: replaced whole, with their mode, and on the disk where that is promised."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from federation import durable_file
from relay.operator.holds import HOLDS_FILE, Holds, write_holds

Steps = list[tuple[str, Path]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Syncs and renames, in their order, by what was synced and what was renamed."""
    done: Steps = []
    sync, replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", path))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    return done


def as_durable_writes(file: Path) -> Steps:
    new = file.with_name(f"{file.name}.new")
    return [("sync", new), ("rename", new), ("sync", file.parent)]


def test_a_durable_file_is_synced_before_its_name_and_its_name_after(
    tmp_path: Path, steps: Steps
) -> None:
    file = tmp_path / "file.json"
    durable_file.write(file, "ä", durable=True)
    assert file.read_text(encoding="utf-8") == "ä"
    assert steps == as_durable_writes(file)


def test_what_need_not_outlive_a_power_cut_is_not_waited_for(tmp_path: Path, steps: Steps) -> None:
    durable_file.write(tmp_path / "file", "1")
    assert steps == [("rename", tmp_path / "file.new")]


def test_an_order_to_hold_is_on_the_disk_when_it_is_given(tmp_path: Path, steps: Steps) -> None:
    write_holds(tmp_path, Holds(paused=True))
    assert steps == as_durable_writes(tmp_path / HOLDS_FILE)


def test_a_file_has_its_mode_whatever_a_former_attempt_left(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    (tmp_path / "secret.new").write_text("half")
    durable_file.write(file, "whole", mode=durable_file.OWNER_ONLY)
    assert file.read_text() == "whole"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    (tmp_path / "file.new").mkdir()
    with pytest.raises(OSError, match=r"file\.new"):
        durable_file.write(file, "new")
    assert file.read_text() == "old"
