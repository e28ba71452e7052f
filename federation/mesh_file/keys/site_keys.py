"""Keys of a site in the mesh file, and of many sites that are alike; and words that stand for
sites.

A word is a site's name or a tag. Names are looked up first; a valid file has no tag with the name
of a site (`site_rules`), so the order does not matter there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from federation.mesh import DATACENTER
from federation.mesh_file.keys.lane_values import MaxRate
from federation.mesh_file.keys.multicast_keys import InterfaceText
from federation.mesh_file.keys.values import (
    AdminText,
    AmqpTexts,
    Availability,
    Duration,
    HostPortTexts,
    ManagementTexts,
    NodeNames,
    OneOrMore,
    PublicKeys,
    Rate,
    Section,
    Size,
    StreamTexts,
    empty_for_nothing,
    key,
)
from federation.slots import MOST_SLOTS


class TlsKeys(Section):
    """PEM files for amqps, relative to the file that names them."""

    ca: str | None = key(
        None, "authorities that may vouch for the broker", without="the system's", min_length=1
    )
    certificate: str | None = key(
        None, "certificate that the node shows to the broker", without="none is shown", min_length=1
    )
    private_key: str | None = key(
        None,
        "the certificate's private key",
        without="needed with a certificate",
        alias="key",
        min_length=1,
    )


class AdminKeys(Section):
    """Address of a node's status and metrics, and the access to them."""

    url: AdminText = key(
        ...,
        "http://127.0.0.1:PORT, for programs of the node's machine; or https://HOST:PORT, for"
        " holders of the token",
    )
    token: str | None = key(
        None,
        "env:NAME or file:PATH (its first line): the token sent as `Authorization: Bearer`. "
        "Read by the node and by those who ask",
        without="none, and only with http on loopback",
    )
    certificate: str | None = key(
        None,
        "certificate of the node, with its chain",
        without="the node stays on loopback: a proxy stands at `url`, and asks for the token",
        min_length=1,
    )
    private_key: str | None = key(
        None,
        "the certificate's private key",
        without="needed with a certificate",
        alias="key",
        min_length=1,
    )
    ca: str | None = key(
        None,
        "authorities that may vouch for the node to those who ask",
        without="the system's",
        min_length=1,
    )


def whole_admin(value: object) -> object:
    """Return the mapping that a text alone is short for."""
    return {"url": value} if isinstance(value, str) else value


class LogKeys(Section):
    """The disk that a site's log may take."""

    max_bytes: Size | None = key(
        None,
        "largest size of the log",
        unit="bytes",
        trades="less: the disk is safe, and outages may be survived for less than `outage_window`",
        without="as much as the outage window needs",
    )
    on_full: Literal["block", "gap"] | None = key(
        None,
        "when nearly all of the log is still needed: take no more messages of the site "
        "(block), or lose the oldest (gap), which stops the stages that needed them, with a "
        "report",
        trades=(
            "block: nothing is lost, and publishers' messages wait in egress queues; gap: "
            "publishers go on"
        ),
        without="block",
    )
    rate: Rate | None = key(
        None,
        "average growth of the log, own and others' batches, compressed",
        unit="bytes a second",
        trades=(
            "nothing: `max_bytes` is checked against the rate, so that an outage window "
            "that the log cannot hold is refused now and not found in an outage"
        ),
        without="not checked; `isthmus plan --rate` estimates",
    )


ANY_NODE = "any"
"""Word in place of the names of nodes."""


class CassandraKeys(Section):
    """Cassandra of a site's nodes."""

    hosts: HostPortTexts = key(..., "HOST:PORT of one or more of its nodes, which name the others")
    datacenter: str = key(
        DATACENTER, "Cassandra's name of the data centre whose nodes answer", min_length=1
    )
    keyspace: str | None = key(
        None,
        "keyspace of the site, which its nodes make",
        without="isthmus_MESH_SITE",
        min_length=1,
    )
    replication: int = key(
        3,
        "copies of each row in that data centre, when the keyspace is made",
        trades="below 3: one Cassandra node away, and the site stands",
        ge=1,
        le=9,
    )
    user: str = key("", "user of the nodes", without="no password is asked for")
    password: str | None = key(
        None, "env:NAME or file:PATH, whose first line it is", without="none, and no `user`"
    )
    tls: TlsKeys | None = key(
        None, "files for TLS; {}: the system's authorities", without="in clear"
    )


class ZookeeperKeys(Section):
    """ZooKeeper ensemble of a site's nodes."""

    hosts: HostPortTexts = key(..., "HOST:PORT of each of its members")
    user: str = key(
        "",
        "user of the nodes (scheme digest), to whom alone their entries are open",
        without="entries are open to everybody",
    )
    password: str | None = key(
        None, "env:NAME or file:PATH, whose first line it is", without="none, and no `user`"
    )
    tls: TlsKeys | None = key(
        None, "files for TLS; {}: the system's authorities", without="in clear"
    )


def whole_zookeeper(value: object) -> object:
    """Return the mapping that hosts alone are short for."""
    return value if isinstance(value, dict | ZookeeperKeys) else {"hosts": value}


def keyspace_of(mesh: str, site: str, keys: CassandraKeys | None) -> str:
    """Return the name of a site's keyspace."""
    return (keys and keys.keyspace) or re.sub(r"[^a-z0-9]", "_", f"isthmus_{mesh}_{site}".lower())


class ClusterKeys(Section):
    """Servers that the nodes of a site share: who runs the site, and its state."""

    zookeeper: (
        Annotated[
            ZookeeperKeys,
            BeforeValidator(whole_zookeeper, json_schema_input_type=HostPortTexts | ZookeeperKeys),
        ]
        | None
    ) = key(
        None,
        "who should run the site; HOST:PORT or a list of such is short for {hosts: LIST}",
        without="with no `cassandra` either: `isthmus up` runs one of each, for all sites without",
    )
    cassandra: CassandraKeys | None = key(
        None,
        "where the journal of the site's state is",
        without="as `zookeeper`",
    )
    session: Duration = key(
        "2s",
        "time after which a node that ZooKeeper does not hear from is replaced",
        trades="longer: fewer takeovers on a bad network, and a dead node is missed for longer",
    )
    copies: int = key(
        2,
        "number of nodes that keep a copy of a slot's state, a second old, beside the node that"
        " runs the slot",
        trades="more: so many nodes may die at once before a takeover has to read the state first;"
        " each copy costs a tenth of the CPU that running its slot costs",
        ge=1,
        le=9,
    )


class ContentKeys(Section):
    """Large messages of a site that are kept in its Cassandra, and not in its log."""

    above: Size = key(
        ...,
        "size of the messages that stay in the log, counted in whole pieces of 768 KiB; at least"
        " 700KiB",
        unit="bytes",
    )


def log_of_site(mesh: LogKeys, site: LogKeys | None) -> LogKeys:
    """Return the log's keys of a site: those of the mesh, overridden by the site's own."""
    if site is None:
        return mesh
    own = {name: value for name, value in site if value is not None}
    return mesh.model_copy(update=own)


class SiteKeys(Section):
    """A broker cluster and virtual host. `{site}` in any text stands for the site's name."""

    cluster_id: str | None = key(
        None,
        "name of the site in the path of every message, by which loops are broken",
        without=("the site's name"),
    )
    tags: list[str] = key([], "words that `from`, `to`, `never_via` and `hub` take for the sites")
    broker: AmqpTexts | None = key(
        None,
        "amqp[s]://USER@HOST[:PORT]/VHOST; for a cluster a list of its nodes' addresses, with"
        " one user and virtual host",
        trades="several: each connection goes to another node when its own dies",
        without="`isthmus up` runs a private one",
    )
    stream: StreamTexts | None = key(
        None,
        "rabbitmq-stream[+tls]://HOST[:PORT], or a list of such",
        without="the broker's hosts, port 5552, or 5551 with amqps",
    )
    password: str | None = key(
        None,
        "env:NAME or file:PATH, whose first line it is; relative to the file that names it",
        without="there must be no `broker`, or `auth: external`",
    )
    auth: Literal["password", "external"] = key(
        "password",
        "login of nodes by AMQP: a password, or the certificate of `tls` (SASL EXTERNAL); the"
        " stream protocol uses `password` where given, else the certificate too",
        trades="external: no password to keep; the broker needs rabbitmq_auth_mechanism_ssl, and "
        "the certificate has to name the user of `broker`",
    )
    users: Literal["shared", "separate"] = key(
        "shared",
        "users of the site's node at that broker: the user of `broker` for all purposes, or "
        "for each purpose a separate user with the smallest rights, which `isthmus apply` "
        "makes; their passwords are in the state folder",
        trades="separate: a stolen password opens little; `apply` needs `management` and an "
        "administrator in `broker`, and the node the same secrets.json",
    )
    link_password: str | None = key(
        None,
        "env:NAME or file:PATH, as for `password`: password of the node at other sites' "
        "brokers where links meet, as user isthmus.MESH.link.SITE",
        trades="with it no site holds the password of another's broker; `isthmus apply` makes that "
        "user at a broker whose site has `management`, or prints what to run",
        without=(
            "the node uses the broker's own password there; a private broker always has a"
            " separate one"
        ),
    )
    management: ManagementTexts | None = key(
        None,
        "http[s]://HOST[:PORT], or a list of such",
        trades="with it `isthmus apply` sets users and policies itself",
        without="`isthmus apply` prints what to run",
    )
    brokers: int = key(
        1,
        "number of nodes of the private cluster that `isthmus up` runs on this machine",
        trades=(
            "3: the site survives the loss of any one broker node, and each message is "
            "written three times"
        ),
        ge=1,
        le=9,
    )
    replicas: int | None = key(
        None,
        "number of members of each of the relay's queues and of the log, as `isthmus apply` "
        "declares them; existing queues keep their members",
        trades=(
            "more: more broker nodes may be away at once, and each message is written that often"
        ),
        without="as many as broker nodes, at most 5, and of four 3; as the broker likes where "
        "`isthmus apply` may not count them",
        ge=1,
        le=9,
    )
    slots: int = key(
        1,
        "number of slots that the site's work is cut into, by exchange: each with its own log,"
        " barrier and state. Once the site has run, `isthmus reslot` changes it",
        trades="more: several nodes of a `cluster` share the work; each costs connections, and on"
        " each link a session. Numbers that are multiples of each other need the fewest",
        ge=1,
        le=MOST_SLOTS,
    )
    place: dict[str, int] = key(
        {},
        "by exchange: the slot, from 0, that has its messages",
        without="a hash of the exchange's name says",
    )
    nodes: NodeNames | None = key(
        None,
        "names of the nodes that may run the site, each started with --node NAME; or any",
        without="any with `cluster`; one, which has no name, without",
    )
    cluster: ClusterKeys | None = key(
        None,
        "what several nodes of the site share, so that one goes on where another has ended",
        trades="a machine may die; the site needs a ZooKeeper and a Cassandra",
        without="one node, with its state on its own disk",
    )
    content: ContentKeys | None = key(
        None,
        "large messages that the site's nodes keep in the Cassandra of `cluster`, and not in the"
        " site's log, equal bodies once; nothing changes on a link or for other sites",
        trades="the log stays small; a megabyte costs three Cassandra nodes some forty times the"
        " CPU of one member of the log, and passes only while Cassandra answers",
        without="all messages are in the log",
    )
    admin: (
        Annotated[
            AdminKeys,
            BeforeValidator(whole_admin, json_schema_input_type=AdminText | AdminKeys),
        ]
        | None
    ) = key(
        None,
        "address of the node's status; a text is short for {url: TEXT}. Of several nodes"
        " `{node}` in it stands for the name of each",
        without="on a free port of loopback: `isthmus status` elsewhere shows `unknown`",
    )
    tls: TlsKeys | None = key(None, "files for amqps", without="the system's authorities")
    public_key: PublicKeys | None = key(
        None,
        "key of the site's signatures, as `isthmus keygen` prints it; two during a change of key",
        without="no signing",
    )
    private_key: str | None = key(
        None,
        "env:NAME or file:PATH of the signing key, for the site's node alone; relative to the"
        " file that names it",
        without="needed with a `public_key`",
    )
    parent: str | None = key(None, "in a tree: the site above", without="the site is the root")
    hub: OneOrMore | None = key(
        None,
        "in a hub mesh: the site's hub, or several, or their tag",
        trades="two: the site survives the loss of either",
        without="the only hub",
    )
    multicast: InterfaceText | None = key(
        None,
        "in a mesh with a multicast group: address of the interface that the site's node uses for"
        " it; none: no multicast comes to the site, whose links bring all",
        without="as the machine routes multicast",
    )
    wants: dict[str, list[str]] = key(
        {},
        "by exchange: patterns of the keys that the site takes; of other exchanges it takes "
        "everything",
        trades="narrower: a message for one shop crosses one link",
    )
    begins: Literal["now", "start"] = key(
        "now",
        "start of a site that joins a running mesh: with messages that others pack once they "
        "know this file (now), or with those for every site that their logs still hold "
        "(start)",
        trades=(
            "start: older messages come too; now: none of them crosses the lines for this "
            "site alone"
        ),
        alias="from",
    )
    log: LogKeys | None = key(None, "disk space of the site's log", without="the mesh's `log`")
    max_rate: MaxRate | None = key(
        None,
        "rate of all links out of the site together, beside the rate of each",
        trades="less: others have more of the line, and a backlog takes longer",
        without="unlimited",
    )
    availability: Availability = key(
        1.0,
        "part of the time that the broker and the node work",
        unit="0 to 1",
        trades="only `isthmus plan` reads it: true figures make its forecast true",
    )

    @property
    def is_cluster(self) -> bool:
        """True if the keys give the site's broker several nodes, as `Site.is_cluster`."""
        return len(self.broker or ()) > 1 or self.brokers > 1 or (self.replicas or 1) > 1


class BranchesKeys(Section):
    """Many sites that are alike. `{site}` in any text of the template stands for the name, and
    `{COLUMN}` for what the table has in that column; `{{` and `}}` are braces.
    """

    template: Annotated[
        dict[str, Any], BeforeValidator(empty_for_nothing, json_schema_input_type=SiteKeys | None)
    ] = key({}, "the keys of each of these sites")
    names: list[str] | None = key(None, "the sites", without="those in `file`", min_length=1)
    file: str | None = key(
        None,
        "table of the sites: CSV with a first line of column names, one of which is `site`; "
        "relative to the file that names it",
        without="those in `names`",
        min_length=1,
    )


class SiteWords:
    """Meaning of each word of a mesh file, computed once."""

    def __init__(self, sites: Mapping[str, SiteKeys]) -> None:
        self._sites = sites
        self._tagged: dict[str, list[str]] = {}
        for name, site in sites.items():
            for tag in dict.fromkeys(site.tags):
                self._tagged.setdefault(tag, []).append(name)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of all sites, in the order of the file."""
        return tuple(self._tagged)

    def stands_for(self, word: str) -> tuple[str, ...]:
        """Return the sites of a word, in the order of the file; none for an unknown word."""
        if word in self._sites:
            return (word,)
        return tuple(self._tagged.get(word, ()))

    def sites_of(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return the sites of all words, each once; unknown words are skipped."""
        return tuple(dict.fromkeys(site for word in words for site in self.stands_for(word)))

    def all_but(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return the sites that no word stands for, in the order of the file."""
        without = set(self.sites_of(words))
        return tuple(site for site in self._sites if site not in without)
