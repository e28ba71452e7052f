"""Keys of a site in the mesh file, and of many sites that are alike; and words that stand for
sites.

A word is a site's name or a tag. Names are looked up first; a valid file has no tag with the name
of a site (`site_rules`), so the order does not matter there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from federation.mesh_file.keys.lane_values import MaxRate
from federation.mesh_file.keys.values import (
    AdminText,
    AmqpTexts,
    Availability,
    ManagementTexts,
    OneOrMore,
    PublicKeys,
    Rate,
    Section,
    Size,
    StreamTexts,
    empty_for_nothing,
    key,
)


class TlsKeys(Section):
    """PEM files for amqps, relative to the file that names them."""

    ca: str | None = key(
        None, "authorities that may vouch for the broker", without="the system's", min_length=1
    )
    certificate: str | None = key(
        None, "what the node shows to the broker", without="none is shown", min_length=1
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
        "http://127.0.0.1:PORT, for programs of the node's machine; or https://HOST:PORT, for "
        "whoever has the token",
    )
    token: str | None = key(
        None,
        "env:NAME or file:PATH, whose first line it is: what is sent as `Authorization: Bearer`. "
        "Read by the node and by those who ask",
        without="none, and only with http on loopback",
    )
    certificate: str | None = key(
        None,
        "of the node, with what it hangs on",
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
        "the most that it may take",
        unit="bytes",
        trades="less: disk is safe, and an outage may be survived for a shorter time than "
        "`outage_window` says",
        without="whatever the outage window needs",
    )
    on_full: Literal["block", "gap"] | None = key(
        None,
        "when nearly all of it is still needed: take no more messages of its own site (block), or "
        "lose the oldest (gap), which stops what needed them and says so",
        trades="block: nothing is lost, publishers' messages wait in egress queues; gap: they "
        "go on",
        without="block",
    )
    rate: Rate | None = key(
        None,
        "what the log takes a second on average, its own and the others' batches, compressed",
        unit="bytes a second",
        trades="nothing: it is what `max_bytes` is checked against, so that an outage window "
        "that the log cannot hold is refused here and not met in an outage",
        without="not checked; `isthmus plan --rate` tells",
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
        None, "stands in the path of every message; loops are broken by it", without="the name"
    )
    tags: list[str] = key([], "words that `from`, `to`, `never_via` and `hub` take for the sites")
    broker: AmqpTexts | None = key(
        None,
        "amqp[s]://USER@HOST[:PORT]/VHOST; of a cluster a list of its nodes' addresses, with one "
        "user and virtual host",
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
        "what nodes log in with by AMQP: a password, or the certificate of `tls` (SASL EXTERNAL); "
        "by the stream protocol with `password` where there is one, else with the certificate too",
        trades="external: no password to keep; the broker needs rabbitmq_auth_mechanism_ssl, and "
        "the certificate has to name the user of `broker`",
    )
    users: Literal["shared", "separate"] = key(
        "shared",
        "whether its node logs in at that broker as the one user of `broker`, or for each purpose "
        "as a user of its own with the smallest rights, which `isthmus apply` makes; their "
        "passwords are in the state folder",
        trades="separate: a stolen password opens little; `apply` needs `management` and an "
        "administrator in `broker`, and the node the same secrets.json",
    )
    link_password: str | None = key(
        None,
        "env:NAME or file:PATH, as for `password`: what its node shows at other sites' brokers, as "
        "user isthmus.MESH.link.SITE, where links meet",
        trades="with it no site holds the password of another's broker; `isthmus apply` makes that "
        "user at a broker whose site has `management`, or prints what to run",
        without="its node logs in there with that broker's own password; at a private broker it "
        "has one anyway",
    )
    management: ManagementTexts | None = key(
        None,
        "http[s]://HOST[:PORT], or a list of such",
        trades="with it `isthmus apply` sets users and policies itself",
        without="`isthmus apply` prints what to run",
    )
    brokers: int = key(
        1,
        "nodes of the private cluster that `isthmus up` runs, on this machine",
        trades="3: the site outlives the loss of any one of its broker nodes, and each message is "
        "written three times",
        ge=1,
        le=9,
    )
    replicas: int | None = key(
        None,
        "members of each queue of the relay's and of the log, which `isthmus apply` declares; what "
        "is there already keeps those that it has",
        trades="more: more broker nodes may be away at once, and each message is written as often",
        without="as many as broker nodes, at most 5, and of four 3; as the broker likes where "
        "`isthmus apply` may not count them",
        ge=1,
        le=9,
    )
    admin: (
        Annotated[
            AdminKeys,
            BeforeValidator(whole_admin, json_schema_input_type=AdminText | AdminKeys),
        ]
        | None
    ) = key(
        None,
        "where its node tells its status; a text is short for {url: TEXT}",
        without="on a free port of loopback: `isthmus status` elsewhere says `unknown`",
    )
    tls: TlsKeys | None = key(None, "files for amqps", without="the system's authorities")
    public_key: PublicKeys | None = key(
        None,
        "what its batches are signed with, as `isthmus keygen` prints it; two while it goes from "
        "one to the other",
        without="it signs nothing",
    )
    private_key: str | None = key(
        None,
        "env:NAME or file:PATH where its node, and nobody else, finds the key that it signs with; "
        "relative to the file that names it",
        without="needed with a `public_key`",
    )
    parent: str | None = key(None, "in a tree: the site that it hangs on", without="it is the root")
    hub: OneOrMore | None = key(
        None,
        "in a hub mesh: the hub that it hangs on, or several, or their tag",
        trades="two: the site outlives the loss of either",
        without="the only hub there is",
    )
    wants: dict[str, list[str]] = key(
        {},
        "by exchange: patterns of the keys that it takes of it; of all other exchanges it takes "
        "all that come to it",
        trades="narrower: a message for one shop crosses one link",
    )
    begins: Literal["now", "start"] = key(
        "now",
        "where it begins if it joins a mesh that runs: with what the others take once they know "
        "this file (now), or with what their logs still hold of what was for every site (start)",
        trades="start: what others had long ago comes too; now: none of that crosses the lines "
        "only for it",
        alias="from",
    )
    log: LogKeys | None = key(None, "the disk that its log may take", without="the mesh's `log`")
    max_rate: MaxRate | None = key(
        None,
        "what all links out of it may send together: its line to the rest; besides what each of "
        "them may",
        trades="less: others have more of the line, and a backlog takes longer",
        without="what its links may",
    )
    availability: Availability = key(
        1.0,
        "the part of the time that its broker and node work",
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
    names: list[str] | None = key(None, "the sites", without="they stand in `file`", min_length=1)
    file: str | None = key(
        None,
        "a table of them: CSV with a first line of column names, one of which is `site`; "
        "relative to the file that names it",
        without="they stand in `names`",
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
