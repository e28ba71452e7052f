"""One process a site: a second one is told so, and takes nothing from the first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dedup.store import StoreLocked
from relay.node.process_lock import ANNOUNCED, only_process


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with only_process(tmp_path):
        (tmp_path / ANNOUNCED).write_text(json.dumps({"pid": os.getpid(), "admin_port": 1}))
        refused = pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}")
        with refused, only_process(tmp_path):
            pass
    with only_process(tmp_path):
        pass


@pytest.mark.parametrize("said", ["", "[]", '{"pid": "x"}'])
def test_who_has_it_may_not_be_known(tmp_path: Path, said: str) -> None:
    (tmp_path / ANNOUNCED).write_text(said)
    refused = pytest.raises(StoreLocked, match="in use by another process")
    with only_process(tmp_path), refused, only_process(tmp_path):
        pass
