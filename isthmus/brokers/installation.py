"""Installations of RabbitMQ, and how to run a program of one.

An installation is a tree (`.../rabbitmq_server-3.10.8`, with sbin/rabbitmq-server) or a chroot: a
whole Debian in a folder, with a RabbitMQ newer than the machine's. In a chroot the broker's own
folder is mounted as /mnt; the mounts live in a mount namespace of the process, so that none remains
however the process ends.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from isthmus.brokers.errors import RabbitMQNotFoundError

SYSTEM_LIBRARY = Path("/usr/lib/rabbitmq/lib")
FOLDER_INSIDE_CHROOT = Path("/mnt")
OLDEST_VERSION = (3, 10)

# $1 the chroot, $2 the broker's folder, then the command. Everything is exec'ed, so the process
# that was spawned becomes the command: its PID and its parent-death signal stay.
#
# The mounts must not spread to the namespace that we came from. Only a mount point can be made
# private, and when all of this runs in a chroot itself, / is none; /proc is one everywhere. So the
# chroot is mounted on a folder in /proc, which nobody else sees, and further mounts go below it.
_ENTER_CHROOT = """
set -e
inside=/proc/driver
mount --make-private /proc
mount --bind "$1" "$inside"
mount --make-private "$inside"
mount --bind "$2" "$inside/mnt"
mount --rbind /dev "$inside/dev"
mount --bind /proc "$inside/proc"
shift 2
exec chroot "$inside" "$@"
"""


@dataclass(frozen=True, slots=True)
class RabbitMQInstallation:
    """RabbitMQ server: `home` is the tree as seen from inside `chroot`, if any."""

    home: Path
    version: str
    chroot: Path | None = None

    @property
    def release(self) -> tuple[int, ...]:
        """Version as numbers, for comparisons: (4, 0, 5)."""
        return _release(self.version)

    @property
    def home_outside(self) -> Path:
        """Path of the tree from this process's side."""
        if self.chroot is None:
            return self.home
        return self.chroot / self.home.relative_to("/")

    def path_inside(self, folder: Path) -> Path:
        """Return the path of a broker's own folder, not of files below, from the server's side."""
        return folder if self.chroot is None else FOLDER_INSIDE_CHROOT

    def command(self, folder: Path, *words: str) -> tuple[str, ...]:
        """Return the command line that runs `words` beside the server, with `folder` visible.

        The spawned process becomes the program by exec and keeps the PID.
        """
        if self.chroot is None:
            return words
        return (
            *("unshare", "--mount", "--propagation", "unchanged", "--"),
            *("sh", "-c", _ENTER_CHROOT, "isthmus", str(self.chroot), str(folder), *words),
        )

    def search_path(self) -> str:
        """Return PATH for the server's programs (erl, epmd, sh)."""
        standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.chroot is None:
            return f"{os.environ.get('PATH', '')}:{standard}:/usr/lib/erlang/bin"
        return f"{standard}:/usr/lib/erlang/bin"


def find_installation(
    folder: Path | None = None, *, library: Path = SYSTEM_LIBRARY
) -> RabbitMQInstallation:
    """Return the installation in `folder` (a tree or a chroot), or by default the newest of the
    system's packages. Raises RabbitMQNotFoundError.
    """
    if folder is None:
        return _usable(_newest(library), looked_in=library)
    folder = folder.absolute()
    if _is_tree(folder):
        return _usable(RabbitMQInstallation(folder, _version_of(folder)), looked_in=folder)
    inside = folder / SYSTEM_LIBRARY.relative_to("/")
    found = _newest(inside)
    if found is None:
        raise RabbitMQNotFoundError(
            [folder / "sbin", inside], f"{folder} has no RabbitMQ server in it"
        )
    home = Path("/") / found.home.relative_to(folder)
    return _usable(RabbitMQInstallation(home, found.version, chroot=folder), looked_in=inside)


def _usable(found: RabbitMQInstallation | None, *, looked_in: Path) -> RabbitMQInstallation:
    if found is None:
        raise RabbitMQNotFoundError([looked_in], "no RabbitMQ server is installed")
    if found.release < OLDEST_VERSION:
        raise RabbitMQNotFoundError([looked_in], f"RabbitMQ {found.version} is too old")
    if found.chroot is not None and os.geteuid() != 0:
        raise RabbitMQNotFoundError(
            [looked_in], f"{found.chroot} is a chroot, and only root can run programs in one"
        )
    if found.chroot is None:
        missing = [word for word in ("erl", "epmd") if not _program(found, word)]
        if missing:
            raise RabbitMQNotFoundError(
                [looked_in], f"Erlang is not installed: no {' and no '.join(missing)} in PATH"
            )
    return found


def _program(installation: RabbitMQInstallation, word: str) -> str | None:
    return shutil.which(word, path=installation.search_path())


def _newest(library: Path) -> RabbitMQInstallation | None:
    trees = [tree for tree in library.glob("rabbitmq_server-*") if _is_tree(tree)]
    found = [RabbitMQInstallation(tree, _version_of(tree)) for tree in trees]
    return max(found, key=lambda installation: installation.release, default=None)


def _is_tree(folder: Path) -> bool:
    # A Debian chroot has an sbin/rabbitmq-server too: the packages' root-only wrapper.
    return (folder / "sbin" / "rabbitmq-server").is_file() and (folder / "plugins").is_dir()


def _version_of(tree: Path) -> str:
    # The plugin that is the server itself carries the version; a tree may have any name.
    for plugin in tree.glob("plugins/rabbit-[0-9]*"):
        return plugin.name.removeprefix("rabbit-").removesuffix(".ez")
    raise RabbitMQNotFoundError([tree / "plugins"], f"{tree} is not a complete RabbitMQ server")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
