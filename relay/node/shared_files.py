"""Files of a site's folder that go with the state from one of the site's nodes to the next.

The folder's file is what is read; the state has a copy, and whoever takes the state over brings the
folder to it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dedup.journal.journal import SlotGone
from federation import durable_file
from relay.state.node_state import Commit, NodeState

_FILE = "file "


def put_file(commit: Commit, folder: Path, file: Path) -> None:
    """Copy a file of a site's folder into the state."""
    commit.put(f"{_FILE}{file.relative_to(folder)}", file.read_bytes())


def write_files(folder: Path, state: NodeState) -> None:
    """Write the state's files into the folder, synced."""
    for key, content in list(state.values(_FILE)):
        file = folder / key.removeprefix(_FILE)
        file.parent.mkdir(parents=True, exist_ok=True)
        durable_file.write(file, content.decode(), durable=True)


async def drop_files(state: NodeState) -> None:
    """Forget the state's files, which are the folder's alone from now on."""
    commit = Commit()
    for key, _ in list(state.values(_FILE)):
        commit.put(key, None)
    await state.write_synced(commit)


class SharedFiles:
    """Files of one site's folder, of which the present state has copies, if there is one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: NodeState | None = None

    def begin(self, state: NodeState) -> None:
        """Write the state's files into the folder. From now on, the state has each new content."""
        self._state = state
        write_files(self._folder, state)

    def end(self) -> None:
        """Leave the state, which ends."""
        self._state = None

    def wrote(self, file: Path) -> None:
        """Copy a file into the state."""
        if self._state is not None and file.exists():
            commit = Commit()
            put_file(commit, self._folder, file)
            # Else the node's run ends for that, and its next one writes the file again.
            with contextlib.suppress(SlotGone):
                self._state.write(commit)
