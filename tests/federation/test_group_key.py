"""Keys of a multicast group: made, read, and refused with where they are, never what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.group_key import GroupKeyUnusable, load_group_key, new_group_key


def test_a_new_key_is_read_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    text = new_group_key()
    file = tmp_path / "group.key"
    file.write_text(f"{text}\n")
    key = load_group_key(f"file:{file}", {})
    assert len(key) == 32
    assert load_group_key("env:GROUP", {"GROUP": text}) == key
    assert new_group_key() != text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("c2hvcnQ=", "has 5 bytes, not 32"),
        ("no base64 at all", "has no line of base64"),
        ("", "file"),
        (None, "No such file"),
    ],
)
def test_an_unusable_key_is_refused_with_its_place(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "group.key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(GroupKeyUnusable) as refused:
        load_group_key(f"file:{file}", {})
    assert said in str(refused.value)
    assert "isthmus keygen --group" in str(refused.value)
    assert "base64 at all" not in str(refused.value).replace("no line of base64", "")
