"""One Spark for several audits, of a process that says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_audit import session
from spark_audit.session import SparkEnded, spark_kept, spark_session


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What became of sessions."""
    told: list[str] = []

    @contextlib.contextmanager
    def start(master: str, memory: str, *, is_small: bool) -> Iterator[session._Started]:
        told.append("started")
        said = tmp_path / "spark.log"
        said.write_text("Java's last words")
        yield session._Started(f"session {told.count('started')}", said)
        told.append("ended")

    monkeypatch.setattr(session, "_start", start)
    return told


def test_each_who_asks_has_one_of_its_own(starts: list[str]) -> None:
    for _ in range(2):
        with spark_session():
            pass
    assert starts == ["started", "ended"] * 2


def test_where_it_is_kept_all_share_one_that_ends_last(starts: list[str]) -> None:
    with spark_kept():
        assert starts == []
        for _ in range(2):
            with spark_session() as spark:
                assert spark == "session 1"
        assert starts == ["started"]
    assert starts == ["started", "ended"]
    with spark_session() as spark:
        assert spark == "session 2"


def test_what_fails_in_one_that_is_kept_is_told_all_the_same(starts: list[str]) -> None:
    with spark_kept(), pytest.raises(SparkEnded, match="last words"), spark_session():
        raise ConnectionRefusedError("Java is gone")
    assert starts == ["started", "ended"]
