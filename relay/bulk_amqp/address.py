"""Where a broker is and how to log in: an AMQP URI, taken apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from relay.bulk_amqp.errors import AddressInvalid

_EXTERNAL = "auth_mechanism=external"
_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Address:
    """One broker, virtual host and login. Its ``repr`` leaves the password out."""

    host: str
    port: int
    tls: bool
    user: str
    password: str = field(repr=False)
    vhost: str
    is_external: bool = False
    """The login is the certificate that the TLS connection shows (SASL EXTERNAL)."""

    def __str__(self) -> str:
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{self.user}@{self.host}:{self.port} vhost {self.vhost!r}"

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Read ``amqp://user:password@host:port/vhost`` or ``amqps://...``.

        User, password and vhost may be percent-encoded (``%2F`` is the vhost ``/``). Left out:
        guest/guest, port 5672 (amqps 5671), vhost ``/`` (also for a lone trailing slash, as
        Python clients read it). ``?auth_mechanism=external`` logs in by certificate; any other
        query (``?heartbeat=..``) is refused: pass arguments instead.

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
