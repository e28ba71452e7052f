"""What somebody probably meant who wrote a key or a value of another form. Tables, and their use.

Each entry is a mistake that newcomers make: a word of another product, a list where the file has a
mapping, one thing where it takes several.
"""

from __future__ import annotations

import json
import re

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.exchange_keys import ExchangeKeys
from federation.mesh_file.nearest import nearest
from federation.mesh_file.section import Section, keys_of
from federation.mesh_file.site_keys import BranchesKeys, SiteKeys
from federation.mesh_file.topology_keys import LinkKeys
from federation.mesh_file.violation import EVERY_SITE
from federation.mesh_file.yaml_tree import Tree

OTHER_WORDS = {
    "host": "broker",
    "hostname": "broker",
    "vhost": "broker",
    "user": "broker",
    "username": "broker",
    "url": "broker",
    "uri": "broker",
    "amqp": "broker",
    "address": "broker",
    "id": "cluster_id",
    "cluster": "cluster_id",
    "ca_certs": "ca",
    "ca_file": "ca",
    "cacert": "ca",
    "cacertfile": "ca",
    "cert": "certificate",
    "certfile": "certificate",
    "keyfile": "key",
    "private_key": "key",
    "ssl": "tls",
    "auth_mechanism": "auth",
    "sasl": "auth",
    "subscribe": "wants",
    "filter": "wants",
    "labels": "tags",
    "routing_key": "keys",
    "routing_keys": "keys",
    "binding_keys": "keys",
    "bindings": "keys",
    "source": "from",
    "sources": "from",
    "origin": "from",
    "sender": "from",
    "target": "to",
    "targets": "to",
    "destination": "to",
    "destinations": "to",
    "receiver": "to",
    "avoid": "never_via",
    "never_through": "never_via",
    "exclude": "never_via",
    "ack": "acks",
    "dedup": "identity",
    "retries": "retry",
    "attempts": "max_attempts",
    "max": "max_attempts",
    "bidirectional": "both",
    "hubs": "center",
    "max_size": "max_bytes",
    "priority": "lane",
    "priorities": "lanes",
    "bandwidth": "max_rate",
    "rate_limit": "max_rate",
    "throttle": "max_rate",
    "size": "max_bytes",
    "limit": "max_bytes",
    "name": "mesh",
    "shape": "topology",
    "graph": "topology",
    "hub": "topology",
    "tree": "topology",
    "ring": "topology",
    "nodes": "sites",
    "clusters": "sites",
    "peers": "sites",
    "queues": "exchanges",
    "branch": "branches",
    "shops": "branches",
    "csv": "file",
    "table": "file",
    "defaults": "template",
    "retention": "outage_window",
    "star": "hub",
    "hub-and-spoke": "hub",
    "mesh": "complete",
    "full": "complete",
    "full-mesh": "complete",
    "full_mesh": "complete",
    "all": "complete",
    "line": "custom",
    "chain": "custom",
    "partial": "custom",
}
"""Words of other products, and near ones that differ too much in letters, by ours. They count only
where ours is known.
"""

TOPOLOGY_MEND = "write topology: ring, complete, custom, {tree: ROOT} or {hub: SITE}"
_WRITE = {
    "mesh": "write mesh: acme",
    "admin": "write http://127.0.0.1:PORT, with a free port of the node's machine",
    "url": "write https://HOST:PORT, with a free port of the node's machine",
    "token": "write env:NAME or file:PATH",
    "exchanges": "begin each with `- name: NAME`, or write [{name: NAME}]",
    "links": "write [{from: A, to: B}], or one line each beginning with `- `",
    "sites": "write each as `NAME: {}`, such as {paris: {}, tokyo: {}}",
    "branches": "write {names: [A, B], template: {KEY: VALUE}}",
    "template": "write {KEY: VALUE} with the keys of a site",
    "topology": TOPOLOGY_MEND,
    "ring": "write topology: ring, or {ring: {both: true}}",
    "tree": "write {tree: ROOT}, and parent: SITE at each other site",
    "children": "write {PARENT: [SITE, SITE]}",
    "wants": 'write {EXCHANGE: ["PATTERN"]}, such as {orders: ["store.{site}.#"]}',
    "tls": "write {ca: PATH}",
    "log": "write {max_bytes: 20GB, on_full: block}",
    "broker": 'write "amqps://USER@HOST/VHOST"',
    "password": "write env:NAME or file:PATH",
    "link_password": "write env:NAME or file:PATH",
    "retry": "write {max_attempts: 5, backoff: [0.2s, 30s]}",
    "backoff": "write [FIRST, LONGEST], such as [0.2s, 30s]",
    "names": "name one, or take this group out",
    "name": "write the exchange's name",
    "center": "name the hub, or several as [A, B]",
}
"""How a key's value is written, where its form alone does not tell."""
_ITEMS = {
    "exchanges": "write {{name: {0}}}",
    "links": "write {{from: A, to: B}}",
    "branches": "write {{names: [A, B], template: {{KEY: VALUE}}}}",
}
_OWNERS: tuple[tuple[type[Section], str], ...] = (
    (SiteKeys, "a site"),
    (ExchangeKeys, "an exchange"),
    (LinkKeys, "an entry of `links`"),
    (BranchesKeys, "an entry of `branches`"),
    (MeshKeys, "the mesh as a whole"),
)


def meant_word(word: str, known: list[str]) -> str:
    """The known word that this one was probably meant for, or nothing."""
    other = OTHER_WORDS.get(word.lower(), "")
    return (other if other in known else "") or nearest(word, known) or ""


def owner_of(key: str, known: list[str]) -> str:
    """Of a key that stands at the wrong place: what it is a key of."""
    if key not in known:
        for section, said in _OWNERS:
            if key in keys_of(section):
                return said
    return ""


def how_to_write(location: tuple[str | int, ...], value: Tree, *, a_list: bool) -> str:
    """How to write the value there, which has another form; nothing if its form tells."""
    last = location[-1] if location else ""
    text = value.value if isinstance(value.value, str) else None
    if isinstance(last, int):
        form = _ITEMS.get(str(location[-2]), "")
        return form.format(text if text is not None else "NAME")
    if a_list and last in ("from", "to") and text in EVERY_SITE:
        return f"leave `{last}` out for all sites"
    if last in ("from", "to") and isinstance(value.value, list) and not a_list:
        return "write an entry of `links` for each"
    if a_list and text and last not in _WRITE:
        return f"write [{quoted(text)}]"
    return _WRITE.get(str(last), "")


def bounds_mend(location: tuple[str | int, ...]) -> str:
    """What to do about a value that is too short or too long."""
    last = str(location[-1]) if location else ""
    if last in ("from", "to"):
        return "name sites, or leave it out for all"
    return _WRITE.get(last, "mend it, or leave it out for the default")


def quoted(text: str) -> str:
    """The text as YAML takes it for text."""
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text) else json.dumps(text)
