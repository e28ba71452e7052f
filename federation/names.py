"""Every name that Isthmus gives to something on a broker, made in one place.

All begin with `isthmus.<mesh>.`, so that several meshes can share a virtual host and rights can be
given by a pattern. Names of meshes, sites and lanes have no dots (`rules` sees to it), so no
name is a prefix of another by accident: rights of site `a` never cover what belongs to site `a-b`.

A link's strand has the link's names with its lane behind them, so that a mesh that gets lanes keeps
the links that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from federation.mesh import Link

MAX_NAME_BYTES = 255
"""What AMQP, streams and RabbitMQ's users allow."""
_OF_LINK = "the names of its sites"


class NameTooLong(ValueError):
    """A name that a broker would refuse. Shorten what `made_from` says."""

    def __init__(self, name: str, made_from: str) -> None:
        self.name = name
        self.made_from = made_from
        self.length = len(name.encode())
        super().__init__(
            f"{name[:60]!r}... has {self.length} bytes, a broker takes {MAX_NAME_BYTES}: "
            f"shorten {made_from}"
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one mesh. Every method raises NameTooLong."""

    mesh: str

    @property
    def prefix(self) -> str:
        """What all of this mesh's names begin with; the last dot included."""
        return f"isthmus.{self.mesh}."

    # Queues and streams of a site

    def egress(self, exchange: str) -> str:
        """The queue where a site's outgoing messages of that exchange wait."""
        return self._made(f"egress.{exchange}", "the name of the exchange or of the mesh")

    @property
    def egress_prefix(self) -> str:
        return f"{self.prefix}egress."

    @property
    def log(self) -> str:
        """The stream that is a site's log."""
        return self._made("log", "the name of the mesh")

    @property
    def packer_lock(self) -> str:
        """The exclusive queue whose owner may consume egress."""
        return self._made("lock.packer", "the name of the mesh")

    @property
    def deliverer_lock(self) -> str:
        """The exclusive queue whose owner may publish locally."""
        return self._made("lock.deliverer", "the name of the mesh")

    @property
    def packer_lease(self) -> str:
        """Lease in place of the packer's lock on a cluster: a quorum queue, and its exchange."""
        return self._made("lease.packer", "the name of the mesh")

    @property
    def deliverer_lease(self) -> str:
        """Lease in place of the deliverer's lock on a cluster: a quorum queue, and its exchange."""
        return self._made("lease.deliverer", "the name of the mesh")

    @property
    def dead_letters(self) -> str:
        """The queue of messages given up, with reason, count and path; and the exchange that leads
        to it alone, so that whoever writes to it needs no right to the default exchange.
        """
        return self._made("dead", "the name of the mesh")

    @property
    def quarantine(self) -> str:
        """The queue of what cannot be decoded or is older than the window; and its exchange."""
        return self._made("quarantine", "the name of the mesh")

    @property
    def deliverer_mark(self) -> str:
        """The consumer name under which a deliverer's position is stored in its own log."""
        return self._made("deliverer", "the name of the mesh")

    # Links: all at the meeting site's broker

    def link_data(self, link: Link) -> str:
        """The exchange that the link's sender publishes batches to."""
        return self._made(f"data.{link.sender}.{link.receiver}{_lane(link)}", _OF_LINK)

    def link_acks(self, link: Link) -> str:
        """The exchange that the link's receiver publishes welcomes and acks to."""
        return self._made(f"acks.{link.sender}.{link.receiver}{_lane(link)}", _OF_LINK)

    def receiver_queue(self, link: Link) -> str:
        """The exclusive queue, bound to the data exchange, of which there is one receiver."""
        return self._made(f"link.{link.receiver}.data-from.{link.sender}{_lane(link)}", _OF_LINK)

    def sender_queue(self, link: Link) -> str:
        """The exclusive queue, bound to the acks exchange, of the sender."""
        return self._made(f"link.{link.sender}.acks-from.{link.receiver}{_lane(link)}", _OF_LINK)

    def link_queue_prefix(self, site: str) -> str:
        """What the names of the queues begin with that `site` holds at other sites' brokers."""
        return self._made(f"link.{site}.", "the name of the site")

    # Users and policies

    def relay_user(self, site: str) -> str:
        """The user of a site's deliverer at the site's own private broker: what marks its messages
        there.
        """
        return self._made(f"relay.{site}", "the name of the site")

    def packer_user(self, site: str) -> str:
        """The user of a site's packer, which consumes egress."""
        return self._made(f"packer.{site}", "the name of the site")

    def log_user(self, site: str) -> str:
        """The user that writes and reads a site's log, by the stream protocol."""
        return self._made(f"log.{site}", "the name of the site")

    def keeper_user(self, site: str) -> str:
        """The user that counts what waits in a site's queues and takes back what was put aside."""
        return self._made(f"keeper.{site}", "the name of the site")

    def monitor_user(self, site: str) -> str:
        """The user that asks a site's management API how things are."""
        return self._made(f"monitor.{site}", "the name of the site")

    def link_user(self, site: str) -> str:
        """The user of a site's ends of links, at its own broker and at others': what the broker
        vouches for.
        """
        return self._made(f"link.{site}", "the name of the site")

    def ends_user(self, site: str) -> str:
        """The user of a site's ends of links at its own broker, where that is no private one. Not
        the one above: two sites may be virtual hosts of one broker, and that one's password there
        is the site's `link_password`.
        """
        return self._made(f"ends.{site}", "the name of the site")

    @property
    def link_users_prefix(self) -> str:
        return f"{self.prefix}link."

    def application_user(self, site: str) -> str:
        """The user of the applications at a private broker."""
        return self._made(f"app.{site}", "the name of the site")

    def admin_user(self, site: str) -> str:
        """The user with which `apply` sets users and policies at a private broker."""
        return self._made(f"admin.{site}", "the name of the site")

    @property
    def log_policy(self) -> str:
        """The policy that says how long the log is kept."""
        return self._made("log-retention", "the name of the mesh")

    def _made(self, rest: str, made_from: str) -> str:
        name = self.prefix + rest
        if len(name.encode()) > MAX_NAME_BYTES:
            raise NameTooLong(name, made_from)
        return name


def matching(names: Iterable[str] = (), prefixes: Iterable[str] = ()) -> str:
    """A pattern for RabbitMQ's rights and policies: just these names, and all that begin so.

    Of nothing, a pattern that matches nothing (RabbitMQ's own word for that is the empty name).
    """
    whole = [_literal(name) for name in names]
    begun = [f"{_literal(prefix)}.*" for prefix in prefixes]
    return f"^(?:{'|'.join(whole + begun)})$"


def _lane(link: Link) -> str:
    return f".{link.lane}" if link.lane else ""


def _literal(name: str) -> str:
    # Not re.escape: it escapes blanks and more, and the other side is PCRE, not Python.
    return re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", name)
