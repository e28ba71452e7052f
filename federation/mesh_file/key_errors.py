"""pydantic's errors in the words of the mesh file, with suggestions. Pure.

The tables list mistakes of newcomers: a word of another product, a list where the file has a
mapping, a single item where it takes several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pydantic_core import ErrorDetails

from federation.mesh_file.keys.document import MeshKeys, section_at
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.site_keys import BranchesKeys, SiteKeys
from federation.mesh_file.keys.topology_keys import LinkKeys
from federation.mesh_file.keys.values import MESH_ERROR, Section, keys_of
from federation.mesh_file.problem import EVERY_SITE
from federation.mesh_file.tree import Location, Tree, TreeProblem
from federation.wording import nearest

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
"""Words of other products, and near words that differ too much in letters, mapped to Isthmus's. An
entry applies only where its target is a known key.
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
"""Forms of keys' values whose type alone does not suffice as a remedy."""
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


def likely_word(word: str, known: list[str]) -> str:
    """Return the known word that `word` was probably meant for, or an empty text."""
    other = OTHER_WORDS.get(word.lower(), "")
    return (other if other in known else "") or nearest(word, known) or ""


def owner_of(key: str, known: list[str]) -> str:
    """Return the section that a misplaced key belongs to, in words, or an empty text."""
    if key not in known:
        for section, owner in _OWNERS:
            if key in keys_of(section):
                return owner
    return ""


def how_to_write(location: tuple[str | int, ...], value: Tree, *, a_list: bool) -> str:
    """Return the form of a value whose type is wrong, or an empty text if the type suffices as a
    remedy.
    """
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
    """Return the remedy for a value that is too short or too long."""
    last = str(location[-1]) if location else ""
    if last in ("from", "to"):
        return "name sites, or leave it out for all"
    return _WRITE.get(last, "mend it, or leave it out for the default")


def quoted(text: str) -> str:
    """Return the text in a form that YAML takes for text."""
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text) else json.dumps(text)


_EXAMPLES = {
    "mesh": "mesh: acme",
    "sites": "sites: {paris: {}, tokyo: {}, sydney: {}}",
    "name": "name: orders",
    "from": "from: paris",
    "to": "to: tokyo",
}
_FORMS = {
    "string_type": ("text", "write it in quotes if it looks like something else"),
    "bool_type": ("true or false", "write true or false"),
    "int_type": ("a whole number", "write a number without unit and quotes"),
    "list_type": ("a list", "write it as [A, B], or one line each beginning with `- `"),
    "dict_type": ("a mapping", "write it as {KEY: VALUE}, or one `KEY: VALUE` a line"),
    "model_type": ("a mapping", "write it as {KEY: VALUE}, or one `KEY: VALUE` a line"),
}
_BOUNDS = {
    "greater_than_equal": ("be at least {}", "ge"),
    "less_than_equal": ("be at most {}", "le"),
    "too_short": ("have {} or more", "min_length"),
    "too_long": ("have no more than {}", "max_length"),
    "string_too_short": ("not be empty", "min_length"),
}


def problem_of(detail: ErrorDetails, tree: Tree, location: Location) -> TreeProblem:
    """Return a pydantic error as a problem; `location` is the part of its location that the file
    has.
    """
    whole: Location = detail["loc"]
    if detail["type"] == "extra_forbidden" and location == whole:
        return TreeProblem(tree.position_of(location, key=True), *_unknown_key(whole))
    return TreeProblem(tree.position_of(location), *_wrong_value(detail, tree.find(location)))


def _wrong_value(detail: ErrorDetails, value: Tree) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    whole: Location = detail["loc"]
    last = whole[-1] if whole else ""
    key = f"`{last}`" if last and isinstance(last, str) else "this"
    if kind == MESH_ERROR:
        return str(context["wrong"]), str(context["mend"])
    if kind == "extra_forbidden":
        return _none_of(str(last), keys_of(section_at(whole[:-1]) or MeshKeys))
    if kind == "missing" and last == "center":
        return "a hub topology that names no hub", "write topology: {hub: SITE}"
    if kind == "missing":
        return f"{key} is missing", f"add {_EXAMPLES.get(str(last), str(last))}"
    if kind == "literal_error":
        return _none_of(value.value, re.findall(r"'([^']*)'", str(context["expected"])))
    if kind in _FORMS:
        form, mend = _FORMS[kind]
        better = how_to_write(whole, value, a_list=kind == "list_type")
        if kind == "string_type" and not isinstance(value.value, list | dict) and last != "admin":
            better = ""
        return f"{key} must be {form}, not {_kind_of(value)}", better or mend
    if kind in _BOUNDS:
        rule, bound = _BOUNDS[kind]
        return f"{key} must {rule.format(context[bound])}", bounds_mend(whole)
    return f"{key}: {detail['msg'].lower()}", "mend the value"


def _unknown_key(location: Location) -> tuple[str, str]:
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    key = str(location[-1])
    likely, owner = likely_key(location), owner_of(key, known)
    if likely:
        mend = f"did you mean `{likely}`?"
    elif location[:-1] == ("topology",):
        mend = TOPOLOGY_MEND
    elif owner:
        mend = f"it is a key of {owner}"
        if "template" in known:
            mend += ": put it into `template`"
    else:
        mend = f"the keys here are {', '.join(known)}"
    return f"unknown key `{key}`", mend


def likely_key(location: Location) -> str:
    """Return the key that an unknown key was probably meant for, or an empty text."""
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    return likely_word(str(location[-1]), known)


def _none_of(value: object, known: Iterable[str]) -> tuple[str, str]:
    known = list(known)
    likely = likely_word(value, known) if isinstance(value, str) else ""
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    if isinstance(value, bool):
        shown = f"`{str(value).lower()}`"
    mend = f"did you mean `{likely}`?" if likely else f"write one of {', '.join(known)}"
    return f"{shown} is not known here", mend


def _kind_of(tree: Tree) -> str:
    match tree.value:
        case None:
            return "nothing"
        case bool():
            return "true" if tree.value else "false"
        case int() | float():
            return f"the number {tree.value}"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"
