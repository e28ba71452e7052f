"""Keys of a multicast group: 32 random bytes that its sites share, as one line of base64.

`isthmus keygen --group` makes one, and so does `openssl rand -base64 32`.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping

from federation.brokers.credentials import PasswordMissing, resolve_password

GROUP_KEY_BYTES = 32


class GroupKeyUnusable(Exception):
    """A group's key is missing or invalid. Nothing of it is quoted."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no key of the multicast group: {reason}; `isthmus keygen --group` makes one"
        )


def new_group_key() -> str:
    """Return the line of a new key."""
    return base64.b64encode(secrets.token_bytes(GROUP_KEY_BYTES)).decode()


def load_group_key(where: str, environ: Mapping[str, str]) -> bytes:
    """Load the key that `env:NAME` or `file:PATH` names. Raises GroupKeyUnusable."""
    try:
        text = resolve_password(where, environ)
    except PasswordMissing as error:
        raise GroupKeyUnusable(f"{error.where}: {error.reason}") from error
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise GroupKeyUnusable(f"{where} has no line of base64") from None
    if len(key) != GROUP_KEY_BYTES:
        raise GroupKeyUnusable(f"{where} has {len(key)} bytes, not {GROUP_KEY_BYTES}")
    return key
