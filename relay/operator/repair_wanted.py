"""What a repair asks a site for: messages by their place in a batch, and who lacks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from relay.batches.batch import BatchName

IDENTITY_BYTES = 16


class Wanted(NamedTuple):
    """One message. `batch` of a big message is its first piece, `entry` 0."""

    batch: BatchName
    entry: int
    identity: bytes
    destinations: tuple[str, ...]
    """Cluster IDs, sorted."""

    @property
    def place(self) -> tuple[str, int]:
        """As it is told of over HTTP."""
        return str(self.batch), self.entry

    def as_json(self) -> dict[str, Any]:
        return {
            "batch": str(self.batch),
            "entry": self.entry,
            "identity": self.identity.hex(),
            "destinations": list(self.destinations),
        }


class BadRequest(ValueError):
    """This does not say what is wanted."""


def read_wanted(told: object) -> list[Wanted]:
    """What `as_json` made, of many. Raises BadRequest."""
    if not isinstance(told, list) or not told:
        raise BadRequest("messages: a list of objects")
    return [_one(one) for one in told]


def _one(told: Any) -> Wanted:
    try:
        entry, destinations = told["entry"], told["destinations"]
        identity = bytes.fromhex(told["identity"])
        batch = BatchName.parse(told["batch"])
        good = (
            isinstance(entry, int)
            and entry >= 0
            and len(identity) == IDENTITY_BYTES
            and isinstance(destinations, list)
            and destinations
            and all(isinstance(one, str) and one for one in destinations)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"no message is asked for by {told!r}: {error}") from None
    if not good:
        raise BadRequest(f"no message is asked for by {told!r}")
    return Wanted(batch, entry, identity, tuple(sorted(set(destinations))))


def by_place(wanted: Iterable[Wanted]) -> dict[BatchName, dict[int, Wanted]]:
    """By batch, then entry. Who lacks the same message is put together."""
    found: dict[BatchName, dict[int, Wanted]] = {}
    for one in wanted:
        entries = found.setdefault(one.batch, {})
        if (other := entries.get(one.entry)) is not None:
            both = {*other.destinations, *one.destinations}
            one = one._replace(destinations=tuple(sorted(both)))
        entries[one.entry] = one
    return found
