"""What the last apply left bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.brokers.applied import Applied, AppliedRecordBroken, read_applied, write_applied
from federation.brokers.provision import BindingDeclaration

BINDINGS = frozenset({BindingDeclaration("o", "q", "a.#"), BindingDeclaration("news", "q2", "")})
APPLIED = Applied(BINDINGS, frozenset({"q", "q2", "old"}))


def test_it_is_written_and_read_back_by_mesh_and_site(tmp_path: Path) -> None:
    assert read_applied(tmp_path, "acme", "paris") is None
    write_applied(tmp_path, "acme", "paris", "abc", APPLIED)
    write_applied(tmp_path, "acme", "tokyo", "abc", Applied())
    assert read_applied(tmp_path, "acme", "paris") == APPLIED
    assert read_applied(tmp_path, "acme", "tokyo") == Applied()
    assert read_applied(tmp_path, "other", "paris") is None


@pytest.mark.parametrize("content", ["", "{}", '{"format": 1, "bindings": [["a"]]}'])
def test_a_damaged_record_is_told(tmp_path: Path, content: str) -> None:
    write_applied(tmp_path, "acme", "paris", "abc", APPLIED)
    [file] = (tmp_path / "applied").iterdir()
    file.write_text(content)
    with pytest.raises(AppliedRecordBroken, match="delete it and apply again"):
        read_applied(tmp_path, "acme", "paris")
