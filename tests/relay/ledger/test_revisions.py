"""Kept revisions, and what of them still matters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from federation.brokers.addresses import AddressBook, PrivateBroker
from federation.brokers.credentials import make_credentials
from federation.mesh import ExchangeMode, Mesh
from federation.mesh_file import parse_mesh
from relay.batches.known_formats import KNOWN
from relay.delivery.context import DeliveryCounters
from relay.ledger.revisions import KeptRevisions
from relay.node.parts import NodeParts
from relay.operator.holds import Holds

FILE = """\
mesh: m
topology: complete
exchanges: [{name: orders}, {name: stock, mode: split, from: [a, b]}]
sites: {a: {}, b: {}, c: {}}
"""


def mesh(text: str = FILE) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


def parts(kept: KeptRevisions, now: Mesh, site: str = "a") -> NodeParts:
    private = {name: PrivateBroker(1, 2, 3) for name in now.sites}
    book = AddressBook(now, make_credentials(now), private, {})
    return NodeParts(
        site,
        book,
        kept.retired(now),
        Holds(),
        log_is_full=False,
        counters=DeliveryCounters(),
        formats=KNOWN,
    )


def test_a_revision_is_kept_for_the_audit_under_its_name(tmp_path: Path) -> None:
    KeptRevisions(tmp_path).keep(mesh(), 7)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{mesh().revision}.json"
    content = json.loads(file.read_text())
    assert (content["revision"], content["taken_up_ms"]) == (mesh().revision, 7)
    assert set(content["mesh"]["exchanges"]) == {"orders", "stock"}


def test_a_restart_with_the_same_revision_takes_up_nothing(tmp_path: Path) -> None:
    first, second = mesh(), mesh(FILE.replace(", c: {}", ""))

    def taken_up() -> dict[str, int]:
        told = [json.loads(file.read_text()) for file in tmp_path.iterdir()]
        return {one["revision"]: one["taken_up_ms"] for one in told}

    KeptRevisions(tmp_path).keep(first, 1)
    KeptRevisions(tmp_path).keep(second, 2)
    KeptRevisions(tmp_path).keep(second, 3)
    assert taken_up() == {first.revision: 1, second.revision: 2}
    KeptRevisions(tmp_path).keep(first, 4)
    assert taken_up() == {first.revision: 4, second.revision: 2}


def test_an_exchange_that_was_taken_out_is_still_packed_and_delivered_as_it_was(
    tmp_path: Path,
) -> None:
    kept = KeptRevisions(tmp_path)
    kept.keep(mesh(), 1)
    now = mesh(FILE.replace(", {name: stock, mode: split, from: [a, b]}", ""))
    kept.keep(now, 2)
    for known in (kept, KeptRevisions(tmp_path)):  # also after a restart
        packed = parts(known, now).packer_settings()
        assert [one.name for one in packed.exchanges] == ["orders", "stock"]
        assert packed.revision == now.revision
        delivered = parts(known, now).delivered_mesh()
        assert delivered.exchanges["stock"].mode is ExchangeMode.SPLIT
    assert [e.name for e in parts(kept, now, "c").packer_settings().exchanges] == ["orders"]


def test_the_latest_former_state_of_an_exchange_counts_and_the_present_one_most(
    tmp_path: Path,
) -> None:
    kept = KeptRevisions(tmp_path)
    first, second = mesh(), mesh(FILE.replace("mode: split, ", ""))
    none = mesh(FILE.replace(", {name: stock, mode: split, from: [a, b]}", ""))
    for time, one in enumerate((first, second, none)):
        kept.keep(one, time)
    stock = parts(kept, none).delivered_mesh().exchanges["stock"]
    assert stock.mode is ExchangeMode.TRANSPARENT
    stock = parts(kept, first).delivered_mesh().exchanges["stock"]
    assert stock.mode is ExchangeMode.SPLIT


def test_a_revision_of_another_mesh_or_that_cannot_be_read_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    kept = KeptRevisions(tmp_path)
    kept.keep(replace(mesh(), name="other", revision="other"), 1)
    (tmp_path / "broken.json").write_text("{")
    assert KeptRevisions(tmp_path).retired(mesh()) == []


def test_lately_are_those_that_were_in_force_within_the_time_or_at_its_beginning(
    tmp_path: Path,
) -> None:
    kept = KeptRevisions(tmp_path)
    meshes = [replace(mesh(), revision=f"r{n}") for n in range(4)]
    for number, one in enumerate(meshes):
        kept.keep(one, 100 * number)
    *_, before, now = meshes

    def lately(since_ms: int) -> list[str]:
        return [one.revision for one in KeptRevisions(tmp_path).lately(now, since_ms)]

    assert lately(0) == ["r2", "r1", "r0"]
    assert lately(150) == ["r2", "r1"]
    assert lately(250) == ["r2"]
    assert lately(301) == []
    assert [one.revision for one in kept.lately(before, 0)] == ["r3", "r1", "r0"]


def test_an_exchange_that_is_retired_is_still_asked_whose_it_was(tmp_path: Path) -> None:
    kept = KeptRevisions(tmp_path)
    kept.keep(mesh(), 1)
    now = mesh(FILE.replace(", {name: stock, mode: split, from: [a, b]}", ""))
    asked = parts(kept, now).authenticity()
    assert ["stock" in asked.origins[site].exchanges for site in "abc"] == [True, True, False]


def test_whom_the_deliverer_logged_in_as_by_earlier_files_is_known(tmp_path: Path) -> None:
    kept = KeptRevisions(tmp_path)
    own = "{broker: 'amqp://shared@h.example/v', password: 'env:P'}"
    kept.keep(mesh(FILE.replace("{a: {}", f"{{a: {own}")), 1)
    kept.keep(mesh(), 2)
    settings = parts(kept, mesh()).packer_settings()
    assert settings.relay_user == "isthmus.m.relay.a"
    assert settings.former_users == ("shared",)
