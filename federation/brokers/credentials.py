"""Passwords made by Isthmus, for private brokers and for `users: separate`, and references to
passwords of sites' own brokers.

STATE/secrets.json has the made passwords, readable by its owner only. They are made once, since
brokers and nodes of several runs must agree on them. For a site's own broker the mesh file names
where the password is (`env:`, `file:`); such passwords are never stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation import durable_file
from federation.mesh import Mesh

SECRETS_FILE = "secrets.json"
_LOCK_FILE = "secrets.lock"
_FORMAT = 1
KINDS = ("relay", "link", "app", "admin")
LATER_KINDS = ("packer", "log", "keeper", "monitor")
"""Kinds that files of earlier versions lack: they are made and added."""
NODE_KINDS = ("relay", "link", *LATER_KINDS)
"""Kinds of a site's node at its own broker."""


class CredentialsError(Exception):
    """The secrets file cannot be used. Restore the file from a copy, or run `isthmus down`, delete
    the file and run `isthmus up`: private brokers take new passwords when they start.
    """

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}")


@dataclass(frozen=True, slots=True)
class SitePasswords:
    """Passwords of one site's users; empty until made. `relay`: its deliverer. `link`: its link
    ends, at all private brokers where they meet.
    """

    relay: str = field(repr=False)
    link: str = field(repr=False)
    app: str = field(repr=False)
    admin: str = field(repr=False)
    packer: str = field(repr=False, default="")
    log: str = field(repr=False, default="")
    keeper: str = field(repr=False, default="")
    monitor: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Passwords made for a mesh, by site name."""

    sites: Mapping[str, SitePasswords]

    def of(self, site: str) -> SitePasswords:
        """Return the passwords of a site. Raises KeyError for a site without any."""
        return self.sites[site]


def make_credentials(
    mesh: Mesh,
    known: Mapping[str, SitePasswords] | None = None,
    random_text: Callable[[int], str] = secrets.token_urlsafe,
) -> Credentials:
    """Return the known passwords, and new passwords for sites and users without any. Sites that
    left the mesh keep theirs: they may come back. `random_text` makes text of so many random bytes.
    """
    known = known or {}
    made = dict(known)
    kinds = (*KINDS, *LATER_KINDS)
    for site in mesh.sites:
        has = {kind: getattr(made[site], kind) for kind in kinds} if site in made else {}
        made[site] = SitePasswords(**{kind: has.get(kind) or random_text(24) for kind in kinds})
    return Credentials(made)


def load_or_make(state: Path, mesh: Mesh) -> Credentials:
    """Return the credentials of a state folder, made and stored first if missing.

    Several processes may call this function at once: one makes the passwords, all get the same.
    Raises CredentialsError, OSError.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = state / SECRETS_FILE
    with _locked(state / _LOCK_FILE):
        known = _read(file)
        credentials = make_credentials(mesh, known)
        if dict(credentials.sites) != known:
            _write(file, credentials)
    return credentials


def _read(file: Path) -> dict[str, SitePasswords]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise CredentialsError(file, f"format {content['format']!r}, which this version lacks")
        return {
            name: SitePasswords(
                **{kind: _text(passwords[kind]) for kind in KINDS},
                **{kind: _text(passwords[kind]) for kind in LATER_KINDS if passwords.get(kind)},
            )
            for name, passwords in content["sites"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CredentialsError(file, f"damaged: {error!r}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a password is not text")
    return value


def _write(file: Path, credentials: Credentials) -> None:
    content = {
        "format": _FORMAT,
        "sites": {
            name: {
                kind: text for kind in (*KINDS, *LATER_KINDS) if (text := getattr(passwords, kind))
            }
            for name, passwords in sorted(credentials.sites.items())
        },
    }
    text = json.dumps(content, indent=1)
    durable_file.write(file, text, durable=True, mode=durable_file.OWNER_ONLY)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class PasswordMissing(Exception):
    """A reference without a password behind it. Set the password there, and start again."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"no password in {where}: {reason}")


def resolve_password(password: str, environ: Mapping[str, str]) -> str:
    """Return the password of `env:NAME`, `file:PATH` (its first line) or a text in clear. Raises
    PasswordMissing.
    """
    if not password:
        raise PasswordMissing(
            "what is kept of the mesh file", "it stood there in clear, and such are not kept"
        )
    if password.startswith("env:"):
        name = password.removeprefix("env:")
        if not environ.get(name):
            raise PasswordMissing(f"the environment variable {name}", "it is not set")
        return environ[name]
    if password.startswith("file:"):
        path = Path(password.removeprefix("file:"))
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise PasswordMissing(f"the file {path}", str(error)) from error
        if not lines or not lines[0]:
            raise PasswordMissing(f"the file {path}", "its first line is empty")
        return lines[0]
    return password
