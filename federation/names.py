"""Names of all objects that Isthmus creates on a broker.

All begin with `isthmus.<mesh>.`, so that several meshes can share a virtual host and rights can be
given by a pattern. Names of meshes, sites and lanes have no dots (the mesh file's rules refuse
them), so no name is a prefix of another by accident: rights of site `a` never cover the objects of
site `a-b`.

A lane's objects bear the link's names with the lane behind, so that a mesh that gets lanes keeps
its present links. The objects of a site's further slots bear those of its first with the slot
behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from federation.mesh import Exchange, Link, Mesh
from federation.partitions import partition_name

MAX_NAME_BYTES = 255
"""Limit of AMQP, streams and RabbitMQ's users."""
_OF_LINK = "the names of its sites"


class NameTooLong(ValueError):
    """A name that a broker would refuse. `made_from` names the part to shorten."""

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
    """Names of one mesh, and of one slot at its sites. Every method raises NameTooLong."""

    mesh: str
    slot: int = 0

    @property
    def prefix(self) -> str:
        """Beginning of all names of this mesh, with the last dot."""
        return f"isthmus.{self.mesh}."

    # Queues and streams of a site

    def egress(self, exchange: str, partition: int = 0) -> str:
        """Return the queue where a site's outgoing messages of a partition of an exchange wait."""
        name = partition_name(exchange, partition)
        return self._made(f"egress.{name}", "the name of the exchange or of the mesh")

    def partitions(self, exchange: str) -> str:
        """Return the exchange that spreads the messages of an exchange over its partitions."""
        return self._made(f"partitions.{exchange}", "the name of the exchange or of the mesh")

    @property
    def partitions_prefix(self) -> str:
        """Beginning of the names of all exchanges that spread messages over partitions."""
        return f"{self.prefix}partitions."

    def egress_queues(self, exchange: Exchange) -> tuple[str, ...]:
        """Return the egress queues of an exchange, by partition."""
        return tuple(self.egress(exchange.name, n) for n in range(exchange.partitions))

    @property
    def egress_prefix(self) -> str:
        return f"{self.prefix}egress."

    @property
    def log(self) -> str:
        """Stream that is the log of a site's slot."""
        return self._of_slot("log")

    @property
    def packer_lock(self) -> str:
        """Exclusive queue whose owner may consume egress."""
        return self._of_slot("lock.packer")

    @property
    def deliverer_lock(self) -> str:
        """Exclusive queue whose owner may publish locally."""
        return self._of_slot("lock.deliverer")

    @property
    def packer_lease(self) -> str:
        """Lease in place of the packer's lock on a cluster: a quorum queue, and its exchange."""
        return self._of_slot("lease.packer")

    @property
    def deliverer_lease(self) -> str:
        """Lease in place of the deliverer's lock on a cluster: a quorum queue, and its exchange."""
        return self._of_slot("lease.deliverer")

    @property
    def dead_letters(self) -> str:
        """Queue of messages given up, with reason, count and path; and the exchange that leads to
        it alone, so that writers need no right to the default exchange.
        """
        return self._of_slot("dead")

    @property
    def quarantine(self) -> str:
        """Queue of batches that cannot be decoded or are older than the window; and its
        exchange.
        """
        return self._of_slot("quarantine")

    @property
    def deliverer_mark(self) -> str:
        """Consumer name under which a deliverer's position is stored in its own log."""
        return self._made("deliverer", "the name of the mesh")

    # Links: all at the meeting site's broker

    def link_data(self, link: Link) -> str:
        """Return the exchange that the link's sender publishes batches to."""
        return self._made(f"data.{link.sender}.{link.receiver}{link.strand}", _OF_LINK)

    def link_acks(self, link: Link) -> str:
        """Return the exchange that the link's receiver publishes welcomes and acks to."""
        return self._made(f"acks.{link.sender}.{link.receiver}{link.strand}", _OF_LINK)

    def receiver_queue(self, link: Link) -> str:
        """Return the receiver's exclusive queue, bound to the data exchange."""
        return self._made(f"link.{link.receiver}.data-from.{link.sender}{link.strand}", _OF_LINK)

    def sender_queue(self, link: Link) -> str:
        """Return the sender's exclusive queue, bound to the acks exchange."""
        return self._made(f"link.{link.sender}.acks-from.{link.receiver}{link.strand}", _OF_LINK)

    def link_queue_prefix(self, site: str) -> str:
        """Return the beginning of the names of queues that `site` holds at other sites' brokers."""
        return self._made(f"link.{site}.", "the name of the site")

    # Users and policies

    def relay_user(self, site: str) -> str:
        """Return the user of a site's deliverer at its private broker, which marks its messages
        there.
        """
        return self._made(f"relay.{site}", "the name of the site")

    def packer_user(self, site: str) -> str:
        """Return the user of a site's packer, which consumes egress."""
        return self._made(f"packer.{site}", "the name of the site")

    def log_user(self, site: str) -> str:
        """Return the user that writes and reads a site's log, by the stream protocol."""
        return self._made(f"log.{site}", "the name of the site")

    def keeper_user(self, site: str) -> str:
        """Return the user that counts the messages in a site's queues and takes back those put
        aside.
        """
        return self._made(f"keeper.{site}", "the name of the site")

    def monitor_user(self, site: str) -> str:
        """Return the user that reads a site's management API."""
        return self._made(f"monitor.{site}", "the name of the site")

    def link_user(self, site: str) -> str:
        """Return the user of a site's link ends, at its own broker and at others', for which the
        broker vouches.
        """
        return self._made(f"link.{site}", "the name of the site")

    def ends_user(self, site: str) -> str:
        """Return the user of a site's link ends at its own broker, if that is not private.
        Different from `link_user`: two sites may be virtual hosts of one broker, where the password
        of `link_user` is the site's `link_password`.
        """
        return self._made(f"ends.{site}", "the name of the site")

    @property
    def link_users_prefix(self) -> str:
        return f"{self.prefix}link."

    def application_user(self, site: str) -> str:
        """Return the user of the applications at a private broker."""
        return self._made(f"app.{site}", "the name of the site")

    def admin_user(self, site: str) -> str:
        """Return the user with which `apply` sets users and policies at a private broker."""
        return self._made(f"admin.{site}", "the name of the site")

    @property
    def log_policy(self) -> str:
        """Policy that sets the retention of a site's logs."""
        return self._made("log-retention", "the name of the mesh")

    def _of_slot(self, rest: str) -> str:
        return self._made(f"{rest}.s{self.slot}" if self.slot else rest, "the name of the mesh")

    def _made(self, rest: str, made_from: str) -> str:
        name = self.prefix + rest
        if len(name.encode()) > MAX_NAME_BYTES:
            raise NameTooLong(name, made_from)
        return name


def slot_names(mesh: Mesh, site: str) -> tuple[Names, ...]:
    """Return the names of each slot of a site, the first slot's first."""
    return tuple(Names(mesh.name, slot) for slot in range(mesh.sites[site].slots.count))


def matching(names: Iterable[str] = (), prefixes: Iterable[str] = ()) -> str:
    """Return a pattern for RabbitMQ's rights and policies: exactly `names`, and all names with one
    of the `prefixes`.

    Without either, the pattern matches nothing (RabbitMQ's own pattern for that is the empty text).
    """
    whole = [_literal(name) for name in names]
    begun = [f"{_literal(prefix)}.*" for prefix in prefixes]
    return f"^(?:{'|'.join(whole + begun)})$"


LONGEST_PATTERN_BYTES = 1024
"""Longest pattern that RabbitMQ takes since 4.3."""
_SLOT_NUMBER = re.compile(r"\.s[0-9]+$")


def fitting(exact: str, wider: str) -> str:
    """Return the exact pattern, or the wider one where the exact one is too long for RabbitMQ."""
    return exact if len(exact.encode()) <= LONGEST_PATTERN_BYTES else wider


def of_slots(names: Iterable[str], prefixes: Iterable[str] = ()) -> str:
    """Return a pattern as `matching` does for names of a site's slots; of any slot, where the exact
    pattern is too long for RabbitMQ.
    """
    every, begun = [*names], [f"{_literal(prefix)}.*" for prefix in prefixes]
    return fitting(matching(every, prefixes), of_any_slot(every, begun))


def of_any_slot(names: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return a pattern for names of slots, whatever their slots; `more` are patterns that count as
    well.
    """
    first = dict.fromkeys(_SLOT_NUMBER.sub("", name) for name in names)
    every = [rf"{_literal(name)}(?:\.s[0-9]+)?" for name in first]
    return f"^(?:{'|'.join([*every, *more])})$"


def of_link_end(prefix: str, end: str, *, sends: str, hears: str) -> str:
    """Return a pattern for one of both exchanges of all links that have an end at a site, and for
    that end's queues. `sends` is the exchange's word where the site sends, `hears` where it
    receives: data, acks. Names of sites have no dot.
    """
    ours, site = _literal(prefix), _literal(end)
    of_sender = rf"{sends}\.{site}\..*"
    of_receiver = rf"{hears}\.[^.]+\.{site}(?:[^A-Za-z0-9_-].*)?"
    return rf"^(?:{ours}(?:{of_sender}|{of_receiver}|link\.{site}\..*))$"


def _literal(name: str) -> str:
    # Not re.escape, which escapes blanks and more: the broker's patterns are PCRE.
    return re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", name)
