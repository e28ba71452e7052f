"""Passwords of brokers, by reference: the mesh file names where a password is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


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
