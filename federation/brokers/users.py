"""Users of a site's private broker, one for each purpose, each with the smallest rights that work.

A stolen password opens only what its purpose needs: only the application's and the administrator's
users may write to the default exchange, which reaches any queue, and only a link's end may bind an
exchange to a queue, its own. docs/security.md has the table.

RabbitMQ's rights are three patterns: *configure* allows declaring and deleting, *write* publishing,
appending to a stream and (of a queue) binding it, *read* consuming, purging and (of an exchange)
binding to it. Counting the messages of a queue needs no right.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from federation.brokers.credentials import Credentials, SitePasswords
from federation.mesh import Link, Mesh
from federation.names import (
    Names,
    fitting,
    matching,
    of_any_slot,
    of_link_end,
    of_slots,
    slot_names,
)

NOT_OURS = r"^(?!isthmus\.)"
"""Pattern of the names that applications may use: all that do not begin with `isthmus.`."""

_APPLICATIONS = r"(?!isthmus\.|amq\.default$).+"
"""Pattern of the exchanges of applications, but the default one, which reaches any queue."""
NOTHING = matching()


@dataclass(frozen=True, slots=True)
class UserDeclaration:
    """A user and its rights (patterns) in the site's virtual host."""

    name: str
    password: str = field(repr=False)
    configure: str
    write: str
    read: str
    tags: tuple[str, ...] = ()

    @property
    def rights(self) -> dict[str, str]:
        """Rights as the management API takes and shows them."""
        return {"configure": self.configure, "write": self.write, "read": self.read}


def site_users(
    mesh: Mesh, site: str, credentials: Credentials, formerly_delivered: Collection[str] = ()
) -> list[UserDeclaration]:
    """Return the users of a private broker: those of the site's node, its applications and
    administrators, and a user for each site with a link end here.

    `formerly_delivered`: exchanges that earlier revisions delivered here; messages under way when
    the file lost them are still delivered.
    """
    names, own = Names(mesh.name), credentials.of(site)
    links = links_meeting_at(mesh, site)
    ends = dict.fromkeys(end for link in links for end in (link.sender, link.receiver))
    return [
        *_node_users(mesh, site, own, formerly_delivered),
        UserDeclaration(names.application_user(site), own.app, NOT_OURS, NOT_OURS, NOT_OURS),
        UserDeclaration(names.admin_user(site), own.admin, ".*", ".*", ".*", ("administrator",)),
        *(_link_user(names, end, links, credentials.of(end).link) for end in ends),
    ]


def separate_users(
    mesh: Mesh, site: str, credentials: Credentials, formerly_delivered: Collection[str] = ()
) -> list[UserDeclaration]:
    """Return the users of the site's node alone, for its own broker: as at a private broker."""
    names, own = Names(mesh.name), credentials.of(site)
    links = links_meeting_at(mesh, site)
    has_ends = any(site in (link.sender, link.receiver) for link in links)
    ends = [replace(_link_user(names, site, links, own.link), name=names.ends_user(site))]
    return [*_node_users(mesh, site, own, formerly_delivered), *(ends if has_ends else ())]


def guests(mesh: Mesh, site: str) -> dict[str, UserDeclaration]:
    """Return, by site, the users that other sites' link ends need at the own broker of `site`, if
    they have a `link_password`. Passwords are left empty for the caller to resolve.
    """
    links = links_meeting_at(mesh, site)
    ends = dict.fromkeys(end for link in links for end in (link.sender, link.receiver))
    return {
        end: _link_user(Names(mesh.name), end, links, "")
        for end in ends
        if end != site
        and mesh.sites[site].broker is not None
        and mesh.sites[end].link_password is not None
    }


def _node_users(
    mesh: Mesh, site: str, own: SitePasswords, formerly_delivered: Collection[str]
) -> list[UserDeclaration]:
    names, slots = Names(mesh.name), slot_names(mesh, site)
    aside = [queue for slot in slots for queue in put_aside_queues(slot)]
    logs = [slot.log for slot in slots]
    is_cluster = mesh.sites[site].is_cluster
    deliverers = [slot.deliverer_lease for slot in slots if is_cluster]
    packers = [slot.packer_lease for slot in slots if is_cluster]
    delivered = {
        exchange.delivers_to for exchange in mesh.exchanges.values() if exchange.reaches(site)
    }
    to = [*sorted(delivered.union(formerly_delivered)), *aside, *deliverers]
    return [
        UserDeclaration(
            names.relay_user(site),
            own.relay,
            configure=of_slots(slot.deliverer_lock for slot in slots),
            write=fitting(matching(to), of_any_slot([*aside, *deliverers], [_APPLICATIONS])),
            read=of_slots(deliverers),
        ),
        UserDeclaration(
            names.packer_user(site),
            own.packer,
            configure=of_slots(slot.packer_lock for slot in slots),
            write=of_slots(packers),
            # Queues of exchanges taken out of the file too: they are packed until empty.
            read=of_slots(packers, prefixes=[names.egress_prefix]),
        ),
        UserDeclaration(
            names.log_user(site),
            own.log,
            configure=NOTHING,
            write=of_slots(logs),
            read=of_slots(logs),
        ),
        UserDeclaration(
            names.keeper_user(site),
            own.keeper,
            configure=NOTHING,
            write=NOTHING,
            read=of_slots(aside),
        ),
        # Empty rights let the user see the virtual host.
        UserDeclaration(
            names.monitor_user(site), own.monitor, NOTHING, NOTHING, NOTHING, ("monitoring",)
        ),
    ]


def links_meeting_at(mesh: Mesh, site: str) -> list[Link]:
    """Return the links, in all their lanes, whose ends meet at the broker of `site`."""
    return [strand for link in mesh.links if link.meeting == site for strand in mesh.strands(link)]


def leases(mesh: Mesh, site: str) -> tuple[str, ...]:
    """Return the lease queues of a cluster's deliverers and packers; none for a site with one
    broker node. Each has a fanout exchange of the same name.
    """
    if not mesh.sites[site].is_cluster:
        return ()
    slots = slot_names(mesh, site)
    return tuple(name for one in slots for name in (one.deliverer_lease, one.packer_lease))


def put_aside_queues(names: Names) -> tuple[str, str]:
    """Return the queues of messages that a slot does not deliver. Each has a fanout exchange of the
    same name.
    """
    return names.dead_letters, names.quarantine


def password_hash(password: str, salt: bytes) -> str:
    """Return RabbitMQ's hash: base64 of the salt (4 bytes) and SHA-256 of salt and password."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _link_user(names: Names, end: str, links: list[Link], password: str) -> UserDeclaration:
    # Binding a queue takes write on the queue and read on the exchange; consuming, read on the
    # queue; publishing, write on the exchange. No right covers the default exchange, which reaches
    # any queue.
    sends = [link for link in links if link.sender == end]
    receives = [link for link in links if link.receiver == end]
    writes = [*map(names.link_data, sends), *map(names.link_acks, receives)]
    reads = [*map(names.link_acks, sends), *map(names.link_data, receives)]
    own = [names.link_queue_prefix(end)]
    return UserDeclaration(
        names.link_user(end),
        password,
        configure=matching(prefixes=own),
        write=fitting(
            matching(writes, own), of_link_end(names.prefix, end, sends="data", hears="acks")
        ),
        read=fitting(
            matching(reads, own), of_link_end(names.prefix, end, sends="acks", hears="data")
        ),
    )
