"""Large messages that applications get without their bodies, and fetch by the references (I11)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from federation.mesh import LargeRule, Mesh
from relay.batches.mesh_headers import (
    CONTENT_BYTES_HEADER,
    CONTENT_ID_HEADER,
    CONTENT_SHA256_HEADER,
    PATH_HEADER,
)
from relay.bulk_amqp.content_header import header
from relay.bulk_amqp.field_table import long_integer, long_string
from relay.delivery.local_exchange import Outgoing
from simulation.invariants import InvariantBroken


class FetchedBodies:
    """Bodies that the sites' applications fetch, each from the content store of its site."""

    def __init__(self, mesh: Mesh) -> None:
        self.fetch_at: dict[str, Callable[[bytes], bytes | None]] = {}
        """Calls that return a content of a site's store by its ID, or None."""
        self._mesh = mesh
        self._came: set[tuple[str, bytes]] = set()
        """Sites and the contents that their applications were referred to."""

    def whole(self, site: str, exchange: str, message: Outgoing) -> Outgoing:
        """Return the message with its body. Raise InvariantBroken if the body cannot be fetched, is
        not what the headers say, or does not come in the form that the mesh file demands.
        """
        found = header(message.properties, CONTENT_ID_HEADER)
        if found is None:
            if self._is_due(site, exchange, message):
                raise InvariantBroken(f"I11 at {site}: a body of {len(message.body)} bytes")
            return message
        content_id = bytes.fromhex(found[5:].decode())
        body = self._fetch(site, content_id)
        whole = message._replace(body=body)
        headers = {
            CONTENT_BYTES_HEADER: long_integer(len(body)),
            CONTENT_SHA256_HEADER: long_string(sha256(body).hexdigest().encode()),
        }
        for name, value in headers.items():
            if header(message.properties, name) != value:
                raise InvariantBroken(f"I11 at {site}: {name.decode()} of {content_id.hex()}")
        if message.body or not self._is_due(site, exchange, whole):
            raise InvariantBroken(f"I11 at {site}: {content_id.hex()} came with its body, or small")
        self._came.add((site, content_id))
        return whole

    def check(self) -> None:
        """Raise InvariantBroken unless all can still be fetched."""
        for site, content_id in sorted(self._came):
            self._fetch(site, content_id)

    def _fetch(self, site: str, content_id: bytes) -> bytes:
        body = self.fetch_at[site](content_id)
        if body is None:
            raise InvariantBroken(f"I11 at {site}: content {content_id.hex()} cannot be fetched")
        return body

    def _is_due(self, site: str, exchange: str, message: Outgoing) -> bool:
        """True if the message has to come without its body: a large one, from another site."""
        above = self._mesh.sites[site].content_above
        return (
            above is not None
            and self._mesh.exchanges[exchange].large is LargeRule.REFERENCE
            and len(message.body) > above
            and header(message.properties, PATH_HEADER) is not None
        )
