"""Request of a repair to a site: messages by their place in a batch, and the sites that lack
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from relay.batches.batch import BatchName

IDENTITY_BYTES = 16


class Wanted(NamedTuple):
    """A message to repair. `batch` of a big message is its first piece, `entry` 0."""

    batch: BatchName
    entry: int
    identity: bytes
    destinations: tuple[str, ...]
    """Cluster IDs, sorted."""

    @property
    def place(self) -> tuple[str, int]:
        """Batch and entry in the form used over HTTP."""
        return str(self.batch), self.entry

    def as_json(self) -> dict[str, Any]:
        return {
            "batch": str(self.batch),
            "entry": self.entry,
            "identity": self.identity.hex(),
            "destinations": list(self.destinations),
        }


class BadRequest(ValueError):
    """The request does not define which messages are wanted."""


def read_wanted(content: object) -> list[Wanted]:
    """Decode the `as_json` of many messages. Raises BadRequest."""
    if not isinstance(content, list) or not content:
        raise BadRequest("messages: a list of objects")
    return [_message(one) for one in content]


def _message(content: Any) -> Wanted:
    try:
        entry, destinations = content["entry"], content["destinations"]
        identity = bytes.fromhex(content["identity"])
        batch = BatchName.parse(content["batch"])
        good = (
            isinstance(entry, int)
            and entry >= 0
            and len(identity) == IDENTITY_BYTES
            and isinstance(destinations, list)
            and destinations
            and all(isinstance(one, str) and one for one in destinations)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"no message is asked for by {content!r}: {error}") from None
    if not good:
        raise BadRequest(f"no message is asked for by {content!r}")
    return Wanted(batch, entry, identity, tuple(sorted(set(destinations))))


def by_place(wanted: Iterable[Wanted]) -> dict[BatchName, dict[int, Wanted]]:
    """Group by batch, then entry. Destinations of the same message are joined."""
    found: dict[BatchName, dict[int, Wanted]] = {}
    for one in wanted:
        entries = found.setdefault(one.batch, {})
        if (other := entries.get(one.entry)) is not None:
            both = {*other.destinations, *one.destinations}
            one = one._replace(destinations=tuple(sorted(both)))
        entries[one.entry] = one
    return found
