"""Addresses of brokers with their logins, and clusters: any node of a cluster that answers will
do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from federation.brokers.address_ring import AddressRing
from federation.brokers.endpoint import Endpoint, resolved
from federation.brokers.first_answer import NoneAnswered, first_answer
from relay.bulk_amqp.errors import (
    AddressInvalid,
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    PeerSilent,
)

_EXTERNAL = "auth_mechanism=external"
_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Address:
    """A broker, a virtual host and a login. ``repr`` leaves the password out."""

    host: str
    port: int
    tls: bool
    user: str
    password: str = field(repr=False)
    vhost: str
    is_external: bool = False
    """True if the login is the certificate shown by the TLS connection (SASL EXTERNAL)."""

    def __str__(self) -> str:
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{self.user}@{self.host}:{self.port} vhost {self.vhost!r}"

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Read ``amqp://user:password@host:port/vhost`` or ``amqps://...``.

        User, password and vhost may be percent-encoded (``%2F`` is the vhost ``/``). Defaults:
        guest/guest, port 5672 (amqps 5671), vhost ``/`` (also for a lone trailing slash, as Python
        clients read it). ``?auth_mechanism=external`` logs in by certificate; any other query
        (``?heartbeat=..``) is refused: pass arguments instead.

        Raises AddressInvalid.
        """
        try:
            parts = urlsplit(uri)
            port = parts.port
        except ValueError:
            raise AddressInvalid("not an AMQP URI: host or port cannot be read") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise AddressInvalid("an AMQP URI begins with amqp:// or amqps://")
        if parts.query not in ("", _EXTERNAL) or parts.fragment:
            raise AddressInvalid(f"an AMQP URI here takes no query but {_EXTERNAL}, no fragment")
        if parts.query and parts.scheme != "amqps":
            raise AddressInvalid(f"{_EXTERNAL} is for amqps://: the login is a certificate")
        path = parts.path[1:]
        if "/" in path:
            raise AddressInvalid("a slash inside a virtual host's name is written %2F")
        return cls(
            host=unquote(parts.hostname or "localhost"),
            port=port or _DEFAULT_PORTS[parts.scheme],
            tls=parts.scheme == "amqps",
            user="guest" if parts.username is None else unquote(parts.username),
            password="guest" if parts.password is None else unquote(parts.password),
            vhost=unquote(path) or "/",
            is_external=bool(parts.query),
        )


class NodeConnection(Protocol):
    """Connection to a node, as far as a cluster needs it: ``Connection`` is one."""

    @property
    def close_reason(self) -> Exception | None: ...

    @property
    def lasted_s(self) -> float | None: ...

    def abort(self, reason: str) -> None: ...


C = TypeVar("C", bound=NodeConnection)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A login at several ``places``, which are tried in the order of ``ring``."""

    login: Address
    """User, password and virtual host; host and port are not used."""
    places: tuple[Endpoint, ...]
    ring: AddressRing[Endpoint] = field(default_factory=AddressRing, compare=False)

    @classmethod
    def of(
        cls, uri: str, places: Sequence[Endpoint], ring: AddressRing[Endpoint] | None = None
    ) -> Cluster:
        """Make a cluster with the login in ``uri``. Raises AddressInvalid."""
        return cls(Address.parse(uri), tuple(places), ring or AddressRing())

    async def connect(self, connect: Callable[[Address, str], Awaitable[C]]) -> C:
        """Connect to a node that answers; ``connect`` takes an address and the host to dial.

        Raises the error of the only place; for several places AuthenticationFailed if any node
        refused the login, else ConnectionFailed, with the errors of all.
        """

        async def connected(place: Endpoint) -> C:
            address = replace(self.login, host=place.host, port=place.port)
            return await connect(address, place.dialled)

        try:
            place, connection = await first_answer(
                self.ring.order(await resolved(self.places)),
                connected,
                lambda late: late.abort("another node has answered first"),
                (ConnectionFailed,),
            )
        except NoneAnswered as none:
            raise _combined(list(none.errors.values())) from none
        self.ring.worked(place, lambda: _lasted_s(connection))
        return connection


def _lasted_s(connection: NodeConnection) -> float | None:
    """Seconds that a connection lasted, or None while it is open; 0 if its node was lost or hangs,
    since trying that node first would cost seconds.
    """
    is_lost = isinstance(connection.close_reason, (ConnectionLost, PeerSilent))
    return 0.0 if is_lost else connection.lasted_s


def _combined(errors: list[Exception]) -> Exception:
    if len(errors) == 1:
        return errors[0]
    refusals = [error for error in errors if isinstance(error, AuthenticationFailed)]
    text = "; ".join(map(str, errors))
    return AuthenticationFailed(text, refusals[0].code) if refusals else ConnectionFailed(text)
