"""What a valid mesh file comes to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from federation.mesh import (
    ExchangeMode,
    ForwardingRule,
    IdentityKind,
    IdentityRule,
    IdentityScope,
    Link,
    OrderRule,
    PriorityRule,
    RetryRule,
)
from federation.mesh_file import (
    MeshFileError,
    PasswordMissing,
    load_mesh,
    read_mesh,
    resolve_password,
)
from federation.mesh_file.problem import Severity
from tests.federation.marked import with_tokyo
from tests.federation.meshes import TRIANGLE, mesh_of, problems_of

WHOLE = """\
mesh: acme
outage_window: 72h
topology: ring                  # one way, in file order
links: []
exchanges:
  - name: orders                # topic unless type: says direct, fanout or headers
    keys: ["order.#"]           # what leaves a site
  - {name: prices, from: [paris], to: [tokyo, sydney], mode: split}
sites:
  paris: {link_password: "env:PARIS"}  # no broker named: a private one
  tokyo:  {broker: "amqps://relay@rabbit.tokyo.example/vhost", password: "env:TOKYO_PASSWORD",
           stream: "rabbitmq-stream+tls://rabbit.tokyo.example:5551"}
  sydney: {cluster_id: syd-1}
"""


def pairs(text: str) -> set[tuple[str, str]]:
    return {(link.sender, link.receiver) for link in mesh_of(text).links}


def link(text: str, sender: str, receiver: str) -> Link:
    found = [one for one in mesh_of(text).links if (one.sender, one.receiver) == (sender, receiver)]
    assert len(found) == 1
    return found[0]


def test_the_example_of_the_documentation_comes_to_three_sites_in_a_ring(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(WHOLE)
    mesh = load_mesh(file)
    assert mesh.name == "acme"
    assert mesh.outage_window_s == 72 * 3600
    assert mesh.rule is ForwardingRule.RING
    assert list(mesh.sites) == ["paris", "tokyo", "sydney"]
    assert [one.name for one in mesh.links] == ["paris-tokyo", "tokyo-sydney", "sydney-paris"]
    assert mesh.cluster_ids == {"paris": "paris", "tokyo": "tokyo", "syd-1": "sydney"}
    tokyo = mesh.sites["tokyo"].broker
    assert tokyo is not None
    assert tokyo.amqp == "amqps://relay@rabbit.tokyo.example:5671/vhost"
    assert tokyo.stream == "rabbitmq-stream+tls://rabbit.tokyo.example:5551"
    assert tokyo.password == "env:TOKYO_PASSWORD"
    assert mesh.exchanges["orders"].keys == ("order.#",)
    prices = mesh.exchanges["prices"]
    assert prices.mode is ExchangeMode.SPLIT
    assert prices.delivers_to == "prices.in"
    assert mesh.destination_set(prices) == ("syd-1", "tokyo")
    assert read_mesh(file).problems == ()


def test_what_is_left_out_has_the_documented_defaults() -> None:
    exchange = mesh_of(TRIANGLE.replace(', keys: ["order.#"]', "")).exchanges["orders"]
    assert exchange.type == "topic"
    assert exchange.keys == ("#",)
    assert exchange.origins is None
    assert exchange.destinations is None
    assert exchange.mode is ExchangeMode.TRANSPARENT
    assert exchange.identity == IdentityRule(IdentityKind.UUID)
    assert exchange.scope is IdentityScope.MESH
    assert exchange.order is OrderRule.STRICT
    assert exchange.retry == RetryRule(5, 0.2, 30.0)
    assert exchange.deadline_s is None
    assert mesh_of(TRIANGLE).outage_window_s == 72 * 3600


def test_every_key_of_an_exchange_is_taken() -> None:
    mesh = mesh_of(
        TRIANGLE.replace(
            '{name: orders, keys: ["order.#"]}',
            "{name: o, type: direct, keys: [a, b], identity: 'header:X-Id', scope: origin, "
            "order: best_effort, priorities: order, "
            "retry: {max_attempts: 9, backoff: [500ms, 2m]}, deadline: 90s}",
        )
    )
    exchange = mesh.exchanges["o"]
    assert (exchange.type, exchange.keys) == ("direct", ("a", "b"))
    assert exchange.identity == IdentityRule(IdentityKind.HEADER, "X-Id")
    assert exchange.scope is IdentityScope.ORIGIN
    assert exchange.order is OrderRule.BEST_EFFORT
    assert exchange.priorities is PriorityRule.ORDER
    assert exchange.retry == RetryRule(9, 0.5, 120.0)
    assert exchange.deadline_s == 90


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_all_of_a_fanout_or_headers_exchange_leaves_without_keys(kind: str) -> None:
    mesh = mesh_of(TRIANGLE.replace('keys: ["order.#"]', f"type: {kind}"))
    assert mesh.exchanges["orders"].keys == ()


RING = {("paris", "tokyo"), ("tokyo", "sydney"), ("sydney", "paris")}
BACK = {(b, a) for a, b in RING}


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("topology: ring", RING),
        ("topology: ring\nboth: false", RING),
        ("topology: ring\nboth: true", RING | BACK),
        ("topology: {ring: {}}", RING),
        ("topology: {ring: {both: true}}", RING | BACK),
        ("topology: complete", RING | BACK),
        ("topology: {complete: {}}\nboth: true", RING | BACK),
    ],
)
def test_a_topology_makes_its_links(topology: str, expected: set[tuple[str, str]]) -> None:
    text = f"mesh: acme\n{topology}\nsites: {{paris: {{}}, tokyo: {{}}, sydney: {{}}}}\n"
    assert pairs(text) == expected
    is_complete = "complete" in topology
    assert mesh_of(text).rule is (ForwardingRule.COMPLETE if is_complete else ForwardingRule.RING)


CUSTOM = """\
mesh: acme
topology: custom
links:
  - LINK
sites: {hub: {}, shop: {}, bank: {}}
"""


def test_links_of_a_custom_topology_go_one_way_unless_they_say_both() -> None:
    assert pairs(CUSTOM.replace("LINK", "{from: hub, to: shop}")) == {("hub", "shop")}
    both = {("hub", "shop"), ("shop", "hub")}
    assert pairs(CUSTOM.replace("LINK", "{from: hub, to: shop, both: true}")) == both
    above = CUSTOM.replace("LINK", "{from: hub, to: shop}").replace("links:", "both: true\nlinks:")
    assert pairs(above) == both
    assert pairs(above.replace("shop}", "shop, both: false}")) == {("hub", "shop")}


def test_links_without_a_topology_are_a_custom_one() -> None:
    text = CUSTOM.replace("topology: custom\n", "").replace("LINK", "{from: hub, to: shop}")
    assert pairs(text) == {("hub", "shop")}
    assert mesh_of(text).rule is ForwardingRule.RING


def test_each_way_meets_at_its_receivers_broker_unless_dial_says_otherwise() -> None:
    text = CUSTOM.replace("LINK", "{from: hub, to: shop, both: true}")
    assert link(text, "hub", "shop").meeting == "shop"
    assert link(text, "shop", "hub").meeting == "hub"


@pytest.mark.parametrize(("dial", "meeting"), [("from", "hub"), ("to", "shop"), ("bank", "bank")])
def test_dial_names_the_one_broker_that_both_ways_meet_at(dial: str, meeting: str) -> None:
    text = CUSTOM.replace("LINK", f"{{from: hub, to: shop, both: true, dial: {dial}}}")
    assert link(text, "hub", "shop").meeting == meeting
    assert link(text, "shop", "hub").meeting == meeting


def test_an_entry_of_links_adjusts_a_link_that_the_topology_makes() -> None:
    text = TRIANGLE + "links: [{from: tokyo, to: paris, both: true, dial: to, via: 'gw:5673'}]\n"
    mesh = mesh_of(text)
    assert len(mesh.links) == 6
    assert link(text, "paris", "tokyo") == Link("paris", "tokyo", "paris", "gw:5673")
    assert link(text, "tokyo", "paris") == Link("tokyo", "paris", "paris", "gw:5673")
    assert link(text, "tokyo", "sydney") == Link("tokyo", "sydney", "sydney")


def test_a_stream_address_left_out_is_on_the_brokers_host() -> None:
    text = TRIANGLE.replace(
        "tokyo: {}", "tokyo: {broker: 'amqps://r@t.example', password: 'env:P'}"
    )
    broker = mesh_of(text).sites["tokyo"].broker
    assert broker is not None
    assert broker.stream == "rabbitmq-stream+tls://t.example:5551"
    assert broker.amqp == "amqps://r@t.example:5671/%2F"
    assert broker.management is None


def test_a_password_in_the_address_is_used_but_leaves_the_address_and_is_warned_of() -> None:
    text = with_tokyo("broker: 'amqps://r:s%2Fcret@t.example'")
    broker = mesh_of(text).sites["tokyo"].broker
    assert broker is not None
    assert "cret" not in broker.amqp
    assert broker.password == "s/cret"
    problems = problems_of(text)
    assert [problem.severity for problem in problems] == [Severity.WARNING]
    assert "s%2Fcret" not in str(problems[0])


def test_a_site_may_be_called_no_or_1() -> None:
    mesh = mesh_of("mesh: m\ntopology: complete\nsites: {no: {}, 1: {}, 12: }\n")
    assert list(mesh.sites) == ["no", "1", "12"]


def test_a_site_with_nothing_after_it_is_a_private_one() -> None:
    assert mesh_of("mesh: m\ntopology: complete\nsites:\n  a:\n  b:\n").sites["a"].broker is None


# The revision


def test_comments_and_the_order_of_keys_leave_the_revision_as_it_is() -> None:
    first = mesh_of(TRIANGLE)
    other = mesh_of(
        """\
        # the same, said otherwise
        sites:
          paris:

          tokyo: {}
          sydney: {cluster_id: sydney}
        exchanges:
          - keys: ["order.#"]
            name: "orders"
            mode: transparent
        outage_window: 3d
        topology: {ring: {both: true}}
        mesh: 'acme'
        """
    )
    assert first.revision == other.revision
    assert len(first.revision) == 12
    assert int(first.revision, 16) >= 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mesh: acme", "mesh: acne"),
        ("both: true", "both: false"),
        ("order.#", "order.*"),
        ("tokyo: {}", "tokyo: {cluster_id: t1}"),
        ("topology:", "outage_window: 71h\ntopology:"),
        ("topology:", "batch_format: 2\ntopology:"),
        ("topology: ring", "topology: complete"),
        ("name: orders,", "name: orders, scope: origin,"),
        ("tokyo: {}", "tokyo: {broker: 'amqp://r@t.example', password: 'env:P'}"),
    ],
)
def test_whatever_changes_the_mesh_changes_the_revision(old: str, new: str) -> None:
    assert old in TRIANGLE
    assert mesh_of(TRIANGLE).revision != mesh_of(TRIANGLE.replace(old, new)).revision


def test_the_format_that_nodes_write_without_being_told_leaves_no_trace_in_the_revision() -> None:
    written_out = TRIANGLE.replace("topology:", "batch_format: 1\ntopology:")
    assert mesh_of(TRIANGLE).batch_format == mesh_of(written_out).batch_format == 1
    assert mesh_of(TRIANGLE).revision == mesh_of(written_out).revision


def test_a_password_in_clear_leaves_no_trace_in_the_revision() -> None:
    def revision(password: str) -> str:
        site = f"tokyo: {{broker: 'amqp://r@t.example', password: '{password}'}}"
        return mesh_of(TRIANGLE.replace("tokyo: {}", site)).revision

    assert revision("secret-1") == revision("secret-2")
    assert revision("env:A") != revision("env:B")


def test_the_revision_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    text = TRIANGLE.replace(
        "tokyo: {}", "tokyo: {broker: 'amqp://r@t.example', password: 'file:secret'}"
    )
    revisions = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mesh.yaml").write_text(text)
        mesh = load_mesh(tmp_path / name / "mesh.yaml")
        revisions.add(mesh.revision)
        broker = mesh.sites["tokyo"].broker
        assert broker is not None
        assert broker.password == f"file:{tmp_path / name / 'secret'}"
    assert len(revisions) == 1


def test_retention_is_the_window_and_a_margin() -> None:
    assert mesh_of(TRIANGLE).retention_s == 72 * 3600 * 1.1
    short = mesh_of(TRIANGLE.replace("mesh: acme", "mesh: acme\noutage_window: 30m"))
    assert short.retention_s == 1800 + 900


# Passwords


def test_a_password_comes_from_the_environment() -> None:
    assert resolve_password("env:PW", {"PW": "s3cret"}) == "s3cret"


@pytest.mark.parametrize("environ", [{}, {"PW": ""}])
def test_a_password_that_the_environment_lacks_is_told_by_its_name(environ: dict[str, str]) -> None:
    with pytest.raises(PasswordMissing, match="environment variable PW: it is not set"):
        resolve_password("env:PW", environ)


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    assert resolve_password(f"file:{file}", {}) == "s3cret"
    file.write_text("\n")
    with pytest.raises(PasswordMissing, match="its first line is empty"):
        resolve_password(f"file:{file}", {})
    with pytest.raises(PasswordMissing, match="No such file"):
        resolve_password(f"file:{file}.not", {})


def test_a_password_in_clear_is_itself() -> None:
    assert resolve_password("plain", {}) == "plain"


# Reading files


def test_a_file_that_is_not_there_is_a_problem_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    with pytest.raises(MeshFileError) as caught:
        load_mesh(file)
    assert str(caught.value) == (
        f"{file}:1:1: cannot be read: no such file or directory; name the mesh file"
    )
    with pytest.raises(MeshFileError, match="is a directory"):
        load_mesh(tmp_path)


def test_loading_a_mesh_imports_nothing_that_a_node_could_not_afford() -> None:
    code = (
        "import sys, federation.mesh_file, federation.names; "
        "print(*sorted({'networkx', 'aiohttp', 'aio_pika', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


def test_five_hundred_sites_are_read_in_well_under_three_seconds() -> None:
    shops = [f"shop-{n:03}" for n in range(500)]
    links = "".join(f"  - {{from: hub, to: {shop}, both: true, dial: from}}\n" for shop in shops)
    sites = "".join(f"  {shop}: {{}}\n" for shop in shops)
    mesh = mesh_of(
        "mesh: m\ntopology: custom\n"
        f"links:\n{links}exchanges: [{{name: o}}, {{name: p}}]\nsites:\n  hub: {{}}\n{sites}"
    )
    assert len(mesh.links) == 1000
    assert {one.meeting for one in mesh.links} == {"hub"}
