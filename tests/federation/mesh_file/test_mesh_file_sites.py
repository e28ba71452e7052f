"""What sites and exchanges say of each other: tags, wants, log, TLS, availability, never_via."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import AckRule, Begins, LogLimit, TlsFiles, WhenLogIsFull
from federation.mesh_file import load_mesh, read_mesh
from federation.mesh_file.problem import Severity
from tests.federation.marked import (
    BROKER,
    the_error,
    the_warning,
    with_exchange,
    with_links,
    with_tokyo,
)
from tests.federation.meshes import TRIANGLE, mesh_of, problems_of

MESH = """\
mesh: acme
topology: {ring: {both: true}}
exchanges:
  - {name: orders, keys: ["store.#"], from: [paris], to: [shops]}
  - {name: news, type: fanout}
  - {name: jobs, type: direct, keys: [print, scan]}
sites:
  paris: {}
  oslo: {tags: [shops, north]}
  turku: {tags: [shops, north]}
  rome: {tags: [shops]}
"""
GOOD_TLS = "tls: {ca: ca.pem, certificate: c.pem, key: k.pem}"


def with_oslo(keys: str, text: str = MESH) -> str:
    return text.replace("oslo: {tags: [shops, north]", f"oslo: {{tags: [shops, north], {keys}")


def with_orders(keys: str) -> str:
    return MESH.replace("from: [paris], to: [shops]", keys)


# Tags


def test_a_tag_stands_for_the_sites_that_bear_it_in_the_order_of_the_file() -> None:
    orders = mesh_of(MESH).exchanges["orders"]
    assert orders.origins == ("paris",)
    assert orders.destinations == ("oslo", "turku", "rome")
    assert mesh_of(MESH).sites["oslo"].tags == ("shops", "north")


def test_sites_and_tags_may_stand_beside_each_other_and_overlap() -> None:
    text = with_orders("from: [north, paris], to: [rome, shops]")
    orders = mesh_of(text).exchanges["orders"]
    assert orders.origins == ("oslo", "turku", "paris")
    assert orders.destinations == ("rome", "oslo", "turku")


def test_tags_matter_to_the_revision_by_what_they_resolve_to() -> None:
    written_out = MESH.replace("to: [shops]", "to: [turku, rome, oslo]")
    for tags in ("tags: [shops, north]", "tags: [shops]"):
        written_out = written_out.replace(f"{{{tags}}}", "{}")
    assert mesh_of(written_out).revision == mesh_of(MESH).revision
    fewer = MESH.replace("rome: {tags: [shops]}", "rome: {}")
    assert mesh_of(fewer).revision != mesh_of(MESH).revision


# Wants, never_via, acks


def test_a_site_narrows_what_it_takes_by_patterns_and_site_stands_for_its_name() -> None:
    mesh = mesh_of(with_oslo('wants: {orders: ["store.{site}.#", "store.all"], jobs: [print]}'))
    assert mesh.sites["oslo"].wants == {
        "orders": ("store.oslo.#", "store.all"),
        "jobs": ("print",),
    }
    assert mesh.sites["rome"].wants == {}


def test_the_sites_of_never_via_neither_send_nor_get_nor_pass_on() -> None:
    mesh = mesh_of(MESH.replace("name: news,", "name: news, never_via: [rome],"))
    news = mesh.exchanges["news"]
    assert news.never_via == ("rome",)
    assert (news.leaves("rome"), news.reaches("rome")) == (False, False)
    assert (news.leaves("oslo"), news.reaches("oslo")) == (True, True)


def test_acks_are_local_unless_told() -> None:
    mesh = mesh_of(MESH.replace("name: news,", "name: news, acks: remote,"))
    assert mesh.exchanges["news"].acks is AckRule.REMOTE
    assert mesh.exchanges["orders"].acks is AckRule.LOCAL


# Log, TLS, availability


def test_a_site_has_the_meshes_log_limit_but_for_what_it_says_itself() -> None:
    mesh = mesh_of(with_oslo("log: {max_bytes: 1TB}") + "log: {max_bytes: 20GB, on_full: gap}\n")
    assert mesh.sites["oslo"].log == LogLimit(10**12, WhenLogIsFull.GAP)
    assert mesh.sites["rome"].log == LogLimit(20 * 10**9, WhenLogIsFull.GAP)
    assert mesh_of(MESH).sites["rome"].log == LogLimit(None, WhenLogIsFull.BLOCK)


def test_tls_files_are_relative_to_the_mesh_file(tmp_path: Path) -> None:
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).touch()
    revisions = []
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        (folder / "mesh.yaml").write_text(with_tokyo(f"{BROKER}, {GOOD_TLS}"))
        mesh = load_mesh(folder / "mesh.yaml")
        broker = mesh.sites["tokyo"].broker
        assert broker is not None
        assert broker.tls == TlsFiles(
            str(folder / "ca.pem"), str(folder / "c.pem"), str(folder / "k.pem")
        )
        revisions.append(mesh.revision)
    assert revisions[0] == revisions[1]
    assert read_mesh(tmp_path / "mesh.yaml").problems == ()
    missing = read_mesh(tmp_path / "sub" / "mesh.yaml").problems
    assert [problem.severity for problem in missing] == [Severity.WARNING] * 3
    assert "there is no file ca.pem here" in missing[0].wrong


def test_availability_is_a_part_of_the_time_of_sites_and_links() -> None:
    text = with_oslo("availability: 0.98") + "links: [{from: paris, to: oslo, availability: 0.9}]\n"
    mesh = mesh_of(text)
    assert mesh.sites["oslo"].availability == 0.98
    assert mesh.sites["rome"].availability == 1.0
    assert {link.name: link.availability for link in mesh.links}["paris-oslo"] == 0.9


def test_a_site_begins_now_unless_it_says_start() -> None:
    mesh = mesh_of(with_oslo("from: start"))
    assert mesh.sites["oslo"].begins is Begins.START
    assert mesh.sites["rome"].begins is Begins.NOW
    plain, now = mesh_of(with_oslo("")), mesh_of(with_oslo("from: now"))
    assert plain.revision == now.revision != mesh.revision


@pytest.mark.parametrize(
    "text",
    [
        with_oslo("availability: 0.98"),
        with_oslo("log: {max_bytes: 1TB}"),
        with_oslo("wants: {jobs: [print]}"),
        MESH.replace("name: news,", "name: news, acks: remote,"),
        MESH.replace("name: news,", "name: news, never_via: [rome],"),
        MESH + "links: [{from: paris, to: oslo, availability: 0.9}]\n",
    ],
)
def test_each_of_them_changes_the_revision(text: str) -> None:
    assert mesh_of(text).revision != mesh_of(MESH).revision


@pytest.mark.parametrize(
    "text",
    [
        with_oslo("availability: 1"),
        with_oslo("log: {on_full: block}") + "log: {max_bytes: 20GB}\n",
        MESH.replace("name: news,", "name: news, acks: local, never_via: [],"),
    ],
)
def test_a_default_written_out_leaves_the_revision_as_it_is(text: str) -> None:
    plain = MESH + "log: {max_bytes: 20GB}\n" if "20GB" in text else MESH
    assert mesh_of(text).revision == mesh_of(plain).revision


def test_the_order_of_words_and_of_sites_in_a_tag_leaves_the_revision_as_it_is() -> None:
    hub = """\
    mesh: m
    topology: {hub: head}
    exchanges: [{name: o, keys: [a, b], to: [shops]}]
    sites:
      head: {}
      oslo: {tags: [shops], wants: {o: [a, b]}}
      rome: {tags: [shops]}
    """
    turned = """\
    mesh: m
    topology: {hub: head}
    exchanges: [{name: o, keys: [b, a], to: [shops]}]
    sites:
      rome: {tags: [shops]}
      oslo: {wants: {o: [b, a]}, tags: [shops]}
      head: {}
    """
    assert mesh_of(hub).revision == mesh_of(turned).revision


# Refusals


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        # Tags
        (MESH.replace("rome: {tags: [shops]", "rome: {tags: [shops, ^oslo]"), "`oslo` is the name"),
        (
            MESH.replace("rome: {tags: [shops]", "rome: {tags: [shops, ^shops]"),
            "the tag `shops` is",
        ),
        (MESH.replace("rome: {tags: [shops]", "rome: {tags: [shops, ^all]"), "`all` is a reserved"),
        (
            MESH.replace("rome: {tags: [shops]", "rome: {tags: [shops, ^'new york']"),
            "`new york` cannot be a tag; write 1 to 63 letters",
        ),
        (
            MESH.replace("rome: {tags: [shops]", "rome: {tags: ^shops"),
            "must be a list, not text; w",
        ),
        (with_orders("to: [^shop]"), "there is no site or tag `shop`; did you mean `shops`?"),
        (with_orders("to: [^lima]"), "the sites are paris, oslo, turku, rome; the tags are shops,"),
        (with_orders("to: [shops, ^shops]"), "`shops` is here twice; keep one of them"),
        (with_orders("to: ^all"), "`to` must be a list, not text; leave `to` out for all sites"),
        (with_orders("to: [^all]"), "there is no site `all`; leave `to` out for all sites"),
        # Wants
        (
            with_oslo("wants: {^order: ['#']}"),
            "there is no exchange `order`; did you mean `orders`",
        ),
        (
            with_oslo("wants: {^x: ['#']}"),
            "there is no exchange `x`; the exchanges are orders, new",
        ),
        (
            with_oslo("wants: {^news: ['#']}"),
            "`news` is a fanout exchange, whose messages are not ",
        ),
        (
            with_oslo("wants: {^news: ['#']}").replace("fanout", "headers"),
            "`news` is a headers exchange, whose messages are not told apart by keys; make it",
        ),
        (with_oslo("wants: {orders: ^[]}"), "no pattern, so nothing of `orders` is wanted; write"),
        (with_oslo("wants: {orders: ['store.a', ^'store.a']}"), "the pattern `store.a` is here tw"),
        (with_oslo(f"wants: {{orders: [^{'k' * 256}]}}"), "a key has at most 255 bytes; shorten"),
        (with_oslo("wants: {orders: ^store.oslo}"), 'a list, not text; write ["store.oslo"]'),
        (with_oslo("wants: ^['store.#']"), 'write {EXCHANGE: ["PATTERN"]}, such as {orders:'),
        (
            with_oslo("wants: {orders: [^'store.{shop}']}"),
            "`{shop}` stands for nothing here; there",
        ),
        (with_oslo("^want: {orders: ['#']}"), "unknown key `want`; did you mean `wants`?"),
        # never_via and acks
        (with_orders("to: [shops], never_via: [^oslo]"), "`oslo` may not hold `orders`, and is in"),
        (
            with_orders("from: [paris], to: [rome], never_via: [^paris]"),
            "`paris` may not hold `orders`, and is in its `from`; take it out of `never_via` or of",
        ),
        (
            with_orders("to: [oslo], never_via: [^north]"),
            "`oslo` may not hold `orders`, and is in its `to`",
        ),
        (
            with_orders("from: [paris], to: [rome], never_via: [oslo, ^x]"),
            "no site or tag `x`; the",
        ),
        (
            with_orders("never_via: ^[paris, shops]"),
            "this leaves no site to hold `orders`; name fewer sites",
        ),
        (
            with_orders("from: [paris], to: [turku], never_via: ^[oslo, rome]"),
            "no links lead from `paris` to `turku` round the sites of `never_via`, so `orders`",
        ),
        (
            "mesh: m\ntopology: custom\nlinks: [{from: a, to: b, dial: c}, {from: b, to: c}]\n"
            "exchanges: [{name: x, from: [a], to: [b], never_via: ^[c]}]\n"
            "sites: {a: {}, b: {}, c: {}}\n",
            "no links lead from `a` to `b` round the sites of `never_via`, so `x` cannot",
        ),
        (with_orders("acks: ^both"), "`both` is not known here; write one of local, remote"),
        (with_orders("acks: ^true"), "`true` is not known here; write one of local, remote"),
        # Availability
        (with_oslo("availability: ^99.9"), "did you mean 0.999, for 99.9 %?"),
        (with_oslo("availability: ^99%"), "`99%` is in per cent; did you mean 0.99, for 99 %?"),
        (with_oslo("availability: ^0"), "an availability is above 0 and at most 1; write the part"),
        (with_oslo("availability: ^1.01"), "an availability is above 0 and at most 1; write the"),
        (with_oslo("availability: ^high"), "`high` is no availability; write the part of the time"),
        (with_oslo("availability: ^true"), "this is no availability; write the part of the time"),
        (MESH + "links: [{from: paris, to: oslo, availability: ^-1}]\n", "above 0 and at most 1"),
        # Where it begins
        (with_oslo("from: ^later"), "`later` is not known here; write one of now, start"),
        (with_oslo("from: ^Start"), "`Start` is not known here; did you mean `start`?"),
        (with_oslo("^form: start"), "unknown key `form`; did you mean `from`?"),
        # Log
        (with_oslo("log: {max_bytes: ^20}"), "the size 20 has no unit; write 20MB or 20GB"),
        (with_oslo("log: {max_bytes: ^20gb}"), "`20gb` is no size; did you mean `20GB`?"),
        (with_oslo("log: {max_bytes: ^lots}"), "`lots` is no size; write a number and one unit of"),
        (with_oslo("log: {max_bytes: ^1MB}"), "a log of 1MB is not possible: it goes by segments"),
        (
            with_oslo("log: {max_bytes: ^9000TB}"),
            "a log of 9e+03TB is not possible: no disk has th",
        ),
        (with_oslo("log: {max_bytes: 1GB, on_full: ^drop}"), "`drop` is not known here; write one"),
        (with_oslo("log: ^20GB"), "`log` must be a mapping, not text; write {max_bytes: 20GB"),
        (MESH + "log: {max_bytes: 1GB, rate: ^1MB}\n", "`1MB` is no rate; write a size a second"),
        (
            MESH + "outage_window: ^3d\nlog: {max_bytes: 20GB, rate: 100KB/s}\n",
            "an outage window of 3d and its margin, at 100KB/s, take 28.5GB of log, more than the "
            "20GB of `max_bytes`; write max_bytes: 29GB, or an outage window of at most 50h",
        ),
        (
            MESH + "log: {max_bytes: ^20GB, rate: 100KB/s}\n",
            "an outage window of 3d and its margin, at 100KB/s, take 28.5GB of log",
        ),
        (
            with_oslo("log: {max_bytes: ^20GB}") + "log: {max_bytes: 50GB, rate: 100KB/s}\n",
            "take 28.5GB of log, more than the 20GB",
        ),
        # TLS
        (with_tokyo("^tls: {ca: /dev/null}"), "`tls` without a `broker` it belongs to; add broker"),
        (with_tokyo(f"{BROKER}, tls: {{^cert: c.pem}}"), "unknown key `cert`; did you mean `certi"),
        (with_tokyo(f"{BROKER}, tls: {{ca: ^''}}"), "`ca` must not be empty"),
        (with_tokyo(f"{BROKER}, tls: ^x.pem"), "`tls` must be a mapping, not text; write {ca: PAT"),
        (with_tokyo("^host: h"), "unknown key `host`; did you mean `broker`?"),
        (with_tokyo("broker: ^{host: h}"), 'not a mapping; write "amqps://USER@HOST/VHOST"'),
        (with_tokyo("broker: 'amqps://r@h', password: ^{env: P}"), "write env:NAME or file:PATH"),
        (with_tokyo("^outage_window: 3h"), "unknown key `outage_window`; it is a key of the mesh"),
        # What newcomers write first of exchanges and links
        (with_exchange("^orders"), "this must be a mapping, not text; write {name: orders}"),
        (
            with_exchange("{name: o, ^routing_keys: [a]}"),
            "unknown key `routing_keys`; did you mean",
        ),
        (with_exchange("{name: o, retry: ^5}"), "write {max_attempts: 5, backoff: [0.2s, 30s]}"),
        (with_exchange("{name: o, retry: {backoff: ^1s}}"), "write [FIRST, LONGEST], such as"),
        (
            with_exchange("{name: o, retry: {backoff: [1s, ^9d]}}"),
            "a wait longer than the outage w",
        ),
        (with_links("{from: paris, to: ^[tokyo, sydney]}"), "write an entry of `links` for each"),
        (with_links("^[paris, tokyo]"), "this must be a mapping, not a list; write {from: A, to:"),
        ("mesh: m\ntopology: ring\nexchanges: ^{o: {}}\nsites: {a: , b: , c: }\n", "- name: NAME"),
        ("mesh: m\ntopology: ring\nsites: ^[a, b, c]\n", "write each as `NAME: {}`, such as"),
    ],
)
def test_what_is_wrong_is_told_at_its_place_with_the_mend(marked: str, said: str) -> None:
    assert said in the_error(marked)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (with_oslo("wants: {orders: [^'shop.#']}"), "no key of `orders` fits `shop.#`, so nothing"),
        (with_oslo("wants: {orders: [^'store.o#']}"), "`o#` is taken as it stands; write store.#"),
        (
            with_oslo("wants: {jobs: [^copy]}"),
            "no key of `jobs` fits `copy`, so nothing of it will",
        ),
        (with_oslo("wants: {jobs: [^'*']}"), "a direct exchange takes `*` word for word; make it"),
        (
            MESH.replace("paris: {}", "paris: {wants: {^orders: ['store.#']}}"),
            "`orders` does not come to `paris` at all; add `paris` to its `to`, or take this out",
        ),
        (with_oslo("log: {^on_full: gap}"), "`on_full` says nothing without `max_bytes`: the log"),
        (MESH + "log: {^rate: 1KB/s}\n", "`rate` says nothing without `max_bytes`"),
        (with_tokyo(f"{BROKER}, tls: {{ca: ^nowhere.pem}}"), "there is no file nowhere.pem here"),
        (
            with_links("{from: paris, to: tokyo}").replace(
                "exchanges: []",
                "exchanges: [{name: o, acks: ^remote, from: [paris, tokyo], to: [tokyo]}]",
            ),
            "no link leads away from `tokyo`, so no neighbour ever has what is published there",
        ),
    ],
)
def test_what_works_but_should_not_be_is_a_warning(marked: str, said: str) -> None:
    assert said in the_warning(marked)


def test_a_certificate_takes_its_key_and_tls_an_amqps_address(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    half = with_tokyo(f"{BROKER}, tls: {{certificate: '{tmp_path}/c.pem'}}")
    assert "a `certificate` without its `key`; add key: PATH" in str(problems_of(half)[0])
    other = with_tokyo(f"{BROKER}, tls: {{key: '{tmp_path}/k.pem'}}")
    assert "a `key` without its `certificate`" in str(problems_of(other)[0])
    clear = with_tokyo(f"{BROKER}, tls: {{}}".replace("amqps://", "amqp://"))
    assert "`tls` for an address that begins with amqp://" in str(problems_of(clear)[0])


def test_a_window_that_is_not_said_to_be_too_long_for_the_log_is_left_to_plan() -> None:
    assert problems_of(TRIANGLE + "log: {max_bytes: 1GB}\n") == []
    assert problems_of(TRIANGLE + "log: {max_bytes: 50GB, rate: 100KB/s}\n") == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        # A site that cannot be read is still one, so that others may name it.
        (
            MESH.replace("paris: {}", "paris: []") + "links: [{from: rome, to: rom}]\n",
            [(8, 10), (12, 26)],
        ),
        # Tags that cannot be read leave nobody without a tag, and other mistakes are told.
        (with_oslo("tag: x").replace("[shops, north], tag", "shops, tag"), [(9, 16), (9, 23)]),
        (
            MESH.replace("oslo: {tags", "oslo: {tgs").replace(
                "turku: {", "turku: {cluster_id: oslo, "
            ),
            [(9, 10), (10, 23)],
        ),
        (with_oslo("wants: {x: ['#']}, log: 5"), [(9, 40), (9, 56)]),
    ],
)
def test_what_cannot_be_read_hides_nothing_else_and_causes_nothing_else(
    text: str, places: list[tuple[int, int]]
) -> None:
    assert [(p.line, p.column) for p in problems_of(text)] == places
