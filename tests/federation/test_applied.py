"""What the last apply left bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.applied import AppliedRecordBroken, read_applied, write_applied
from federation.provision import BindingDeclaration

BINDINGS = {BindingDeclaration("o", "q", "a.#"), BindingDeclaration("news", "q2", "")}


def test_it_is_written_and_read_back_by_mesh_and_site(tmp_path: Path) -> None:
    assert read_applied(tmp_path, "acme", "paris") is None
    write_applied(tmp_path, "acme", "paris", "abc", BINDINGS)
    write_applied(tmp_path, "acme", "tokyo", "abc", set())
    assert read_applied(tmp_path, "acme", "paris") == BINDINGS
    assert read_applied(tmp_path, "acme", "tokyo") == set()
    assert read_applied(tmp_path, "other", "paris") is None


@pytest.mark.parametrize("content", ["", "{}", '{"format": 1, "bindings": [["a"]]}'])
def test_a_damaged_record_is_told(tmp_path: Path, content: str) -> None:
    write_applied(tmp_path, "acme", "paris", "abc", BINDINGS)
    [file] = (tmp_path / "applied").iterdir()
    file.write_text(content)
    with pytest.raises(AppliedRecordBroken, match="delete it and apply again"):
        read_applied(tmp_path, "acme", "paris")
