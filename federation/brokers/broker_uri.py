"""Addresses of a broker's three listeners as the mesh file gives them: AMQP, stream, management.
Pure.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from federation.wording import WrongText


class BadUri(WrongText):
    """An invalid address. `wrong` and `mend` never quote a password."""


@dataclass(frozen=True, slots=True)
class AmqpUri:
    """Parts of an AMQP URI. `password` is None in a URI without password."""

    host: str
    port: int
    vhost: str
    user: str
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def without_password(self) -> str:
        """Return the full URI without the password."""
        scheme = "amqps" if self.tls else "amqp"
        user = quote(self.user, safe="")
        return f"{scheme}://{user}@{bracketed(self.host)}:{self.port}/{quote(self.vhost, safe='')}"


@dataclass(frozen=True, slots=True)
class HostPort:
    """Host and port of a listener; `tls` if the listener speaks TLS."""

    host: str
    port: int
    tls: bool = False

    def as_uri(self, scheme: str, tls_scheme: str) -> str:
        """Return `scheme://host:port`."""
        return f"{tls_scheme if self.tls else scheme}://{bracketed(self.host)}:{self.port}"


def parse_amqp(text: str) -> AmqpUri:
    """Parse `amqp[s]://user[:password]@host[:port][/vhost]`; the default vhost is `/`. Raises
    BadUri.
    """
    like = "write amqps://USER@HOST/VHOST"
    parts, tls = _split(text, {"amqp": False, "amqps": True}, like)
    if not parts.username:
        raise BadUri("the address names no user", like)
    if "/" in parts.path[1:]:
        raise BadUri("the virtual host has a / in it", "write %2F for a / inside its name")
    return AmqpUri(
        host=parts.hostname or "",
        port=_port(parts, 5671 if tls else 5672),
        vhost=unquote(parts.path[1:]) or "/",
        user=unquote(parts.username),
        password=unquote(parts.password) if parts.password else None,
        tls=tls,
    )


def parse_stream(text: str) -> HostPort:
    """Parse `rabbitmq-stream[+tls]://host[:port]`. Raises BadUri."""
    like = "write rabbitmq-stream+tls://HOST:5551; user and virtual host are the broker's"
    schemes = {"rabbitmq-stream": 5552, "rabbitmq-stream+tls": 5551}
    return _listener(text, "the stream address", schemes, like)


def parse_management(text: str) -> HostPort:
    """Parse `http[s]://host[:port]`. Raises BadUri."""
    like = "write https://HOST:15671; the user is the broker's"
    return _listener(text, "the management address", {"http": 15672, "https": 15671}, like)


def parse_admin(text: str) -> HostPort:
    """Parse `http[s]://host:port` of a node. Raises BadUri."""
    like = "write http://127.0.0.1:PORT or https://HOST:PORT, a free port of the node's machine"
    found = _listener(text, "the node's address", {"http": 0, "https": 0}, like)
    if not found.port:
        raise BadUri("the node's address has no port", like)
    return found


def _listener(text: str, noun: str, ports: dict[str, int], like: str) -> HostPort:
    """Parse an address of host and port. `ports`: default port by scheme, in clear first, then with
    TLS.
    """
    clear, _ = ports
    parts, tls = _split(text, {scheme: scheme != clear for scheme in ports}, like)
    if parts.username or parts.path not in ("", "/"):
        raise BadUri(f"{noun} has more than host and port", like)
    return HostPort(parts.hostname or "", _port(parts, ports[parts.scheme]), tls)


def parse_host_port(text: str) -> tuple[str, int]:
    """Parse `host:port`, with an IPv6 address in brackets. Raises BadUri."""
    like = "write HOST:PORT, such as hub.example:5671"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise BadUri(f"`{text}` is no address", like) from None
    if "//" in text or parts.username or parts.path or not parts.hostname or not port:
        raise BadUri(f"`{text}` is no host and port", like)
    return parts.hostname, port


def is_loopback(host: str) -> bool:
    """Return True for a loopback address and for the name `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bracketed(host: str) -> str:
    """Return an IPv6 address in brackets, any other host unchanged."""
    return f"[{host}]" if ":" in host else host


def _split(text: str, schemes: dict[str, bool], like: str) -> tuple[SplitResult, bool]:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise BadUri("this is no address", like) from None
    if parts.scheme not in schemes:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        raise BadUri(f"the address does not begin with {known}", like)
    if not parts.hostname:
        raise BadUri("the address names no host", like)
    if parts.query or parts.fragment:
        raise BadUri("the address has a ? or # part, which nothing reads", "leave that part out")
    if any(ord(letter) <= 32 for letter in text):
        raise BadUri("the address has a blank in it", like)
    return parts, schemes[parts.scheme]


def _port(parts: SplitResult, default: int) -> int:
    try:
        port = parts.port
    except ValueError:
        raise BadUri(
            "the port is not a number from 1 to 65535", "leave it out or mend it"
        ) from None
    if port == 0:
        raise BadUri("the port is not a number from 1 to 65535", "leave it out or mend it")
    return default if port is None else port
