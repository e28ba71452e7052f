"""Every mistake is told, at its line and column, with the mend."""

from __future__ import annotations

import pytest

from federation.mesh_file.problem import Severity
from federation.mesh_file.tree import MAX_BYTES
from tests.federation.marked import (
    BROKER,
    at,
    the_error,
    with_exchange,
    with_links,
    with_tokyo,
)
from tests.federation.meshes import TRIANGLE, errors_of, problems_of


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        # Keys
        ("^outage: 72h\n" + TRIANGLE, "unknown key `outage`; did you mean `outage_window`?"),
        ("^xyz: 1\n" + TRIANGLE, "unknown key `xyz`; the keys here are mesh, outage_window"),
        (with_exchange("{name: o, ^key: ['#']}"), "unknown key `key`; did you mean `keys`?"),
        (
            with_exchange("{name: o, retry: {^max: 3}}"),
            "unknown key `max`; did you mean `max_att",
        ),
        (with_tokyo("^brokr: x"), "unknown key `brokr`; did you mean `broker`?"),
        (with_links("{from: paris, to: tokyo, ^bth: true}"), "unknown key `bth`; did you"),
        (
            TRIANGLE.replace("ring", "{ring: {^boht: true}}"),
            "unknown key `boht`; did you mean `both`?",
        ),
        (TRIANGLE + "^mesh: other\n", "`mesh` is here twice, first in line 1; keep one of them"),
        (TRIANGLE.replace("tokyo: {}", "^paris: {}"), "`paris` is here twice, first in line 6"),
        (TRIANGLE.replace("mesh: acme\n", "^"), "`mesh` is missing; add mesh: acme"),
        (TRIANGLE.replace("sites:", "^sits:"), "unknown key `sits`; did you mean `sites`?"),
        (
            with_exchange("{name: o, acks: remote, priorities: ^order}"),
            "may lose in a power cut what it confirmed",
        ),
        (
            "mesh: m\ntopology: complete\nexchanges: [{name: o, priorities: ^order}]\n"
            "sites: {a: {brokers: 3}, b: {}}\n",
            "`a` is a cluster",
        ),
        (with_exchange("{name: o, priorities: ^strict}"), "write one of keep, order"),
        (with_exchange("^{keys: ['#']}"), "`name` is missing; add name: orders"),
        (with_links("^{from: paris}"), "`to` is missing; add to: tokyo"),
        (
            "batch_format: ^3\n" + TRIANGLE,
            "this version of Isthmus writes batches of format 1 or 2, not 3; upgrade it at every",
        ),
        ("batch_format: ^0\n" + TRIANGLE, "this is no format of batches; write 1 or 2"),
        ("batch_format: ^true\n" + TRIANGLE, "this is no format of batches; write 1 or 2"),
        # Types
        (TRIANGLE.replace("acme", "^7"), "`mesh` must be text, not the number 7; write it in"),
        (TRIANGLE.replace("both: true", "both: ^1"), "`both` must be true or false, not the nu"),
        (TRIANGLE.replace("both: true", "both: ^yes"), "`both` must be true or false, not text"),
        (
            with_exchange("{name: o, keys: ^order}"),
            "`keys` must be a list, not text; write [orde",
        ),
        (
            with_exchange("{name: o, from: ^paris}"),
            "`from` must be a list, not text; write [pari",
        ),
        (with_exchange("{name: o, keys: [^3]}"), "this must be text, not the number 3"),
        (with_exchange("^orders"), "this must be a mapping, not text; write {name: orders}"),
        (
            TRIANGLE.replace("sites: {paris: {}, tokyo: {}, sydney: {}}", "sites: ^[paris]"),
            "`sites` must be a mapping, not a list; write each as `NAME: {}`",
        ),
        (TRIANGLE.replace("tokyo: {}", "tokyo: ^[]"), "`tokyo` must be a mapping, not a list"),
        (with_exchange("{name: o, retry: {max_attempts: ^'5'}}"), "`max_attempts` must be a who"),
        (with_exchange("{name: o, retry: {max_attempts: ^0}}"), "`max_attempts` must be at least"),
        (with_exchange("{name: o, retry: {backoff: ^[1s]}}"), "`backoff` must have 2 or more"),
        (with_exchange("{name: o, deadline: ^0s}"), "a deadline is above 0; write the longest"),
        (with_exchange("{name: o, deadline: ^73h}"), "longer than the outage window: what takes"),
        (with_exchange("{name: o, deadline: ^90}"), "the duration 90 has no unit"),
        (with_exchange("{name: o, from: ^[]}"), "`from` must have 1 or more"),
        (
            TRIANGLE.replace("sites: {paris: {}, tokyo: {}, sydney: {}}", "sites: ^{}"),
            "there is no site; write sites: {paris: {}, tokyo: {}",
        ),
        # Words
        (TRIANGLE.replace("ring", "^rng"), "`rng` is not known here; did you mean `ring`?"),
        (TRIANGLE.replace("ring", "^star"), "`star` is not known here; did you mean `hub`?"),
        (with_exchange("{name: o, type: ^topik}"), "`topik` is not known here; did you mean `t"),
        (with_exchange("{name: o, mode: ^both}"), "`both` is not known here; write one of trans"),
        (with_exchange("{name: o, identity: ^id}"), "`id` is no kind of identity; write one of "),
        (with_exchange("{name: o, identity: ^'header:'}"), "`header:` is no kind of identity"),
        (with_exchange("{name: o, scope: ^site}"), "`site` is not known here; write one of mesh"),
        (with_exchange("{name: o, order: ^loose}"), "`loose` is not known here; write one of str"),
        # What newcomers write first of the whole
        (
            "^name: acme\n" + TRIANGLE.replace("mesh: acme\n", ""),
            "unknown key `name`; did you mean",
        ),
        ("^tags: {x: [paris]}\n" + TRIANGLE, "unknown key `tags`; it is a key of a site"),
        ("^version: 1\n" + TRIANGLE, "unknown key `version`; the keys here are mesh, outage_wind"),
        ("^nodes: {}\n" + TRIANGLE, "unknown key `nodes`; did you mean `sites`?"),
        (TRIANGLE + "log: ^gap\n", "write {max_bytes: 20GB, on_full: block}"),
        (TRIANGLE.replace("orders, keys", "orders, to: ^tokyo, keys"), "not text; write [tokyo]"),
        # Durations
        ("outage_window: ^72\n" + TRIANGLE, "the duration 72 has no unit; write 72s, 72m or 72h"),
        ("outage_window: ^3 days\n" + TRIANGLE, "`3 days` is no duration; did you mean `3d`?"),
        ("outage_window: ^[72h]\n" + TRIANGLE, "this is no duration; write a number and a unit"),
        ("outage_window: ^0s\n" + TRIANGLE, "this outage window is not possible; write one from"),
        ("outage_window: ^999d\n" + TRIANGLE, "this outage window is not possible; write one"),
        (with_exchange("{name: o, retry: {backoff: ^[9s, 3s]}}"), "the first wait must be above"),
        (with_exchange("{name: o, retry: {backoff: [^9, 30s]}}"), "the duration 9 has no unit"),
        # Names
        (TRIANGLE.replace("acme", "^acme.corp"), "`acme.corp` cannot name a mesh; write 1 to 63"),
        (TRIANGLE.replace("acme", "^''"), "`` cannot name a mesh; write 1 to 63 letters"),
        (TRIANGLE.replace("tokyo: {}", "^to.kyo: {}"), "`to.kyo` cannot name a site; write 1 to"),
        (TRIANGLE.replace("tokyo: {}", "^from: {}"), "`from` is a reserved word; name the site"),
        (with_exchange("{name: ^amq.topic}"), "names that begin with `amq.` are reserved"),
        (with_exchange("{name: ^isthmus.x}"), "names that begin with `isthmus.` are reserved"),
        (with_exchange("{name: ^''}"), "`name` must not be empty"),
        (with_exchange("{name: ^' o'}"), "blanks around the name, or letters that cannot be seen"),
        (with_exchange(f"{{name: ^{'o' * 240}}}"), "a queue's name made of this has 260 bytes"),
        (with_exchange("{name: o}\n  - {name: ^o}"), "there is an exchange `o` already, by that"),
        (
            with_exchange("{name: o, mode: split}\n  - {name: ^o.in}"),
            "there is an exchange `o.in` already, that of split `o`; name one of them otherwise",
        ),
        # Cluster IDs
        (with_tokyo("cluster_id: ^paris"), "the cluster ID `paris` is that of site `paris` alre"),
        (
            with_tokyo("cluster_id: x").replace("sydney: {", "sydney: {cluster_id: ^x, "),
            "the cluster ID `x` is that of site `tokyo` already; give each site its own",
        ),
        (with_tokyo("cluster_id: ^''"), "the cluster ID is empty; leave it out, or write one"),
        (with_tokyo("cluster_id: ^a/b"), "`a/b` cannot be a cluster ID; write up to 63 letters"),
        (with_tokyo("cluster_id: ^7"), "`cluster_id` must be text, not the number 7"),
        # Brokers
        (with_tokyo("broker: ^'http://r@h', password: 'env:P'"), "the address does not begin wi"),
        (with_tokyo("broker: ^'amqp://h/v', password: 'env:P'"), "the address names no user"),
        (with_tokyo("broker: ^'amqp://r@/v', password: 'env:P'"), "the address names no host"),
        (with_tokyo("broker: ^'amqp://r@h:x', password: 'env:P'"), "the port is not a number fr"),
        (with_tokyo("broker: ^'amqp://r@h/a/b', password: 'env:P'"), "the virtual host has a /"),
        (with_tokyo("broker: ^'amqp://r@h/v?x=1', password: 'env:P'"), "the address has a ? or"),
        (with_tokyo(f"{BROKER}, stream: ^'amqp://h'"), "the address does not begin with rabbitm"),
        (with_tokyo(f"{BROKER}, stream: ^'rabbitmq-stream://u@h'"), "the stream address has mor"),
        (with_tokyo(f"{BROKER}, management: ^'h:15672'"), "the address does not begin with http"),
        (with_tokyo("broker: ^'amqp://r@h/v'"), "no password for the broker of `tokyo`; add pas"),
        (with_tokyo("broker: 'amqp://r@h/v', password: ^'env:'"), "this names no password; write"),
        (
            with_tokyo("broker: 'amqp://r@h/v', password: ^'env: PW'"),
            "part of the name; write env:PW",
        ),
        (with_tokyo("^password: 'env:P'"), "`password` without a `broker` it belongs to; add"),
        (with_tokyo("^stream: 'rabbitmq-stream://h'"), "`stream` without a `broker` it belongs"),
        (with_tokyo("broker: 'amqp://r:x@h/v', password: ^'env:P'"), "a second password; take"),
        (
            with_tokyo(BROKER)
            .replace("sydney: {", f"sydney: {{{BROKER}, ")
            .replace("sydney: {broker: ", "sydney: {broker: ^"),
            "site `tokyo` has this broker and virtual host already; a site is a virtual host of",
        ),
        # Exchanges
        (with_exchange("^{name: o, type: direct}"), "the direct exchange `o` needs the keys of"),
        (with_exchange("{name: o, type: direct, keys: ^[]}"), "the direct exchange `o` needs the"),
        (with_exchange("{name: o, keys: ^[]}"), 'no key, so nothing leaves a site; write "#"'),
        (with_exchange("{name: o, type: fanout, ^keys: [a]}"), "a fanout exchange takes no keys"),
        (with_exchange("{name: o, type: headers, ^keys: [a]}"), "a headers exchange takes no key"),
        (with_exchange("{name: o, keys: [a, ^a]}"), "the key `a` is here twice; keep one"),
        (with_exchange(f"{{name: o, keys: [^{'k' * 256}]}}"), "a key has at most 255 bytes"),
        (with_exchange("{name: o, from: [^pariss]}"), "there is no site `pariss`; did you mean"),
        (with_exchange("{name: o, to: [tokyo, ^rome]}"), "there is no site `rome`; the sites are"),
        (with_exchange("{name: o, to: [tokyo, ^tokyo]}"), "`tokyo` is here twice; keep one of"),
        (with_exchange("{name: o, from: [paris], to: ^[paris]}"), "`o` goes from `paris` to it"),
        # Topology and links
        ("mesh: m\ntopology: ^ring\nsites: {a: {}, b: {}}\n", "a ring of 2 is none: it takes thr"),
        ("mesh: m\ntopology: ^complete\nsites: {a: {}}\n", "a complete graph takes two sites; ad"),
        (
            "^mesh: m\nsites: {a: {}, b: {}}\n",
            "`topology` is missing; add topology: ring, complete",
        ),
        ("mesh: m\ntopology: ^custom\nsites: {a: {}, b: {}}\n", "a custom topology without links"),
        (
            TRIANGLE.replace("topology: ring", "topology: ^{ring: {}, complete: {}}"),
            "more than one topology; write topology: ring, complete, custom, {tree: ROOT} or",
        ),
        (TRIANGLE.replace("topology: ring", "topology: ^{}"), "no topology is named; write"),
        (
            TRIANGLE.replace("ring\nboth: true", "complete\nboth: ^false"),
            "in a complete graph links go both ways; take `both` out",
        ),
        (
            TRIANGLE.replace("ring\nboth: true", "{ring: {both: false}}\nboth: ^true"),
            "this contradicts the ring's own `both`; keep one of them",
        ),
        (with_links("{from: paris, to: ^tokio}"), "there is no site `tokio`; did you mean `tokyo`"),
        (with_links("{from: ^x, to: tokyo}"), "there is no site `x`; the sites are paris, tokyo"),
        (with_links("{from: paris, to: ^paris}"), "a link from `paris` to itself; name another"),
        (with_links("{from: paris, to: tokyo, dial: ^both}"), "there is no site `both`; the site"),
        (with_links("{from: paris, to: tokyo, via: ^gw}"), "`gw` is no host and port; write HOST"),
        (
            with_links("{from: paris, to: tokyo, both: true, ^via: 'gw:5671'}"),
            "the two ways meet at different brokers, so one `via` cannot lead to both; add dial",
        ),
        (
            with_links("{from: paris, to: tokyo, both: true}\n  - ^{from: tokyo, to: paris}"),
            "the link from `tokyo` to `paris` is here twice; it is number 1 of the links too",
        ),
        (
            with_links("^{from: paris, to: sydney}", "topology: ring"),
            "the topology has no link from `paris` to `sydney`; turn `from` and `to` round, or add",
        ),
        (
            with_links("^{from: paris, to: sydney}", "topology: ring").replace(
                "sydney: {}", "rome: {}, sydney: {}, oslo: {}"
            ),
            "the topology has no link from `paris` to `sydney`; take it out, or write topology: c",
        ),
        (
            "mesh: m\ntopology: complete\nsites: {a: {}, ^a-b: {}, b-c: {}, c: {}}\n",
            "the links a-b to c and a to b-c would both be called `a-b-c`; name one of the sites",
        ),
        # Reachability
        (
            with_links("{from: paris, to: tokyo}").replace(
                "exchanges: []", "exchanges: [{name: o, from: [paris], to: [tokyo, ^sydney]}]"
            ),
            "no links lead from `paris` to `sydney`, so `o` cannot get there; add a link, or",
        ),
        (
            with_links("{from: paris, to: tokyo}").replace(
                "exchanges: []", "exchanges: [{name: o, from: [^sydney, paris]}]"
            ),
            "no links lead from `sydney` to `paris`, so `o` cannot get there (and 2 more such pai",
        ),
        (
            with_links("{from: paris, to: tokyo}").replace(
                "exchanges: []", "exchanges: [{name: ^o}]"
            ),
            "no links lead from `paris` to `sydney`, so `o` cannot get there (and 4 more such pai",
        ),
    ],
)
def test_a_mistake_is_told_at_its_place_with_the_mend(marked: str, said: str) -> None:
    assert said in the_error(marked)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (with_tokyo("broker: ^'amqp://r:secret@h/v'"), "there is a password in clear in this"),
        (with_tokyo("broker: 'amqp://r@h/v', password: ^secret"), "this password is in clear"),
        (with_tokyo("broker: 'amqp://r@h/v', password: ^$PW"), "in clear; did you mean env:PW?"),
        (
            "^mesh: m\ntopology: complete\nsites: {a: {}, b: {}}\n",
            "no exchange, so this mesh carries",
        ),
        (with_exchange("{name: o, type: direct, keys: [^'a.*']}"), "takes `a.*` word for word"),
        (
            with_exchange("{name: o, keys: [a.#, ^order.**]}"),
            "`**` is taken as it stands; write order.# if any words are meant",
        ),
        (with_exchange("{name: o, keys: [^'a*.b#.c']}"), "`a*` is taken as it stands; write *.#.c"),
        (with_tokyo(f"{BROKER}, stream: ^'rabbitmq-stream://...'"), "`...` is no host that could"),
    ],
)
def test_what_works_but_should_not_be_is_a_warning(marked: str, said: str) -> None:
    text, expected = at(marked)
    [problem] = problems_of(text)
    assert problem.severity is Severity.WARNING
    assert (problem.line, problem.column) == expected
    assert said in str(problem)
    assert "secret" not in str(problem)
    assert ": warning: " in str(problem)


@pytest.mark.parametrize(
    ("data", "position", "said"),
    [
        (b"", (1, 1), "the file is empty; begin with `mesh: NAME`"),
        (b"# nothing\n", (1, 1), "the file is empty"),
        (b"- mesh\n", (1, 1), "the file is no mapping of keys"),
        (b"mesh\n", (1, 1), "the file is no mapping of keys"),
        (b"mesh: acme\nsites: {paris: {}\n", (3, 1), "this is not YAML"),
        (b"mesh: acme\n\ttopology: ring\n", (2, 1), "indent with blanks, not with tabs"),
        (b"mesh: acme\nexchanges: [{name: o, keys: [#]}]\n", (3, 1), 'write "#"'),
        (b"mesh: a\nx: {keys: [*]}\n", (2, 13), "put the text in quotes"),
        (b"mesh: a\nx: *nowhere\n", (2, 4), "put the text in quotes"),
        (b"mesh: a\n  topology: ring\n", (2, 11), "indent it as its neighbours are"),
        (b"sites:\n  a: {}\n   b: {}\n", (3, 4), "indent it as its neighbours are"),
        (b"mesh: a\ntopology ring\nsites: {}\n", (2, 1), "write KEY: VALUE, with a colon and a"),
        (b"mesh: acm\xe9\n", (1, 10), "byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"mesh: a\nx: \xc3\xa9\xff", (2, 5), "byte 0xff is not UTF-8"),
        (b"\xff\xfem\x00e\x00", (1, 1), "byte 0xff is not UTF-8"),
        (b"mesh: a\x00b\n", (1, 8), "character #x0000 is not allowed"),
        (b"mesh: !!python/object/apply:os.system [ls]\n", (1, 7), "tag"),
        (b"a: &a [*a]\n", (1, 4), "an anchor that contains itself"),
        (b"x: " + b"[" * 5000, (1, 1), "nested too deeply"),
        (b"x: " + b"[" * 60 + b"]" * 60, (1, 44), "nested too deeply"),
        (b"#" * (MAX_BYTES + 1), (1, 1), "bytes, more than 1048576"),
        (b"#" * 10_000_000, (1, 1), "bytes, more than 1048576"),
    ],
)
def test_what_is_no_yaml_of_ours_is_told_at_its_place(
    data: bytes, position: tuple[int, int], said: str
) -> None:
    [problem] = [one for one in errors_of(data) if said in str(one)]
    assert (problem.line, problem.column) == position


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    problem = errors_of("\n".join(levels).encode())[0]
    assert "with its aliases written out, this is more than 100000 values" in problem.wrong
    # a4 has 11,111 values, and ten times that is too many.
    assert (problem.line, problem.column) == (5, 5)


def test_an_alias_is_taken_where_it_stands_for_little() -> None:
    text = TRIANGLE.replace("paris: {}", "paris: &p {}").replace("tokyo: {}", "tokyo: *p")
    assert problems_of(text) == []


def test_a_merge_key_is_refused_by_name() -> None:
    assert "merge keys" in the_error(with_tokyo("^<<: {}"))


def test_a_byte_order_mark_does_no_harm() -> None:
    assert problems_of(b"\xef\xbb\xbf" + TRIANGLE.encode()) == []


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = """\
    mesh: acme.corp
    outage_windw: 72h
    topology: ring
    exchanges:
      - {name: orders, keys: order, from: [pariss]}
      - {name: prices, to: [tokyo, rome], retry: {backoff: [1, 3s]}}
      - {name: news, type: fanout, keys: [x]}
    links:
      - {from: paris, to: nowhere}
    sites:
      paris: {}
      tokyo: {broker: "amqp://h", password: 7}
      paris: {}
      sydney: {cluster_id: paris}
    """
    assert [(p.line, p.column) for p in errors_of(text)] == [
        (1, 7),
        (2, 1),
        (5, 26),
        (5, 40),
        (6, 32),
        (6, 57),
        (7, 32),
        (9, 23),
        (12, 19),
        (12, 41),
        (13, 3),
        (14, 24),
    ]


@pytest.mark.parametrize(
    "text",
    [
        # A password that cannot be read is no missing password.
        with_tokyo("broker: 'amqp://r@h/v', password: [x]"),
        # A broker that cannot be read is no missing broker.
        with_tokyo("broker: 'amqp://', password: 'env:P', stream: 'rabbitmq-stream://h'"),
        # Keys that cannot be read are no missing keys.
        with_exchange("{name: o, type: direct, keys: abc}"),
        # A link that cannot be read leaves no site out of reach.
        with_links("{from: paris}").replace("exchanges: []", "exchanges: [{name: o}]"),
        # A type that cannot be read does not make the keys wrong.
        with_exchange("{name: o, type: fanuot, keys: []}"),
        # A topology that cannot be read does not make links wrong.
        TRIANGLE.replace("topology: ring", "topology: rng")
        + "links: [{from: paris, to: tokyo, dial: to}]\n",
    ],
)
def test_a_mistake_is_not_told_twice_by_what_follows_from_it(text: str) -> None:
    assert len(errors_of(text)) == 1, errors_of(text)
