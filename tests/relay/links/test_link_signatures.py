"""Batches that are not of whom they claim to be, and those of which nobody can say it yet."""

from __future__ import annotations

from federation.mesh import Mesh
from relay.batches.batch import BatchKind
from relay.batches.signature import authenticity
from relay.links.metrics import LinkState
from relay.links.receiver.admission import RefusalBudget
from relay.links.settings import LinkSettings
from tests.federation.meshes import mesh_of
from tests.relay.link_world import LinkWorld
from tests.signed_batches import public_key, resealed, signed_batch, signer


def mesh(*keys_of_paris: str) -> Mesh:
    keys = {"paris": keys_of_paris or ("paris",), "tokyo": ("tokyo",), "oslo": ("oslo",)}
    sites = "".join(
        f"  {site}: {{public_key: [{', '.join(map(public_key, its))}], private_key: env:K}}\n"
        for site, its in keys.items()
    )
    return mesh_of(
        "mesh: acme\nbatch_format: 2\nsigning: ed25519\ntopology: complete\n"
        f"exchanges: [{{name: orders}}]\nsites:\n{sites}"
    )


def signing_world() -> LinkWorld:
    world = LinkWorld()
    world.check = authenticity(mesh()).check
    return world


def test_what_was_altered_or_made_up_is_put_aside_and_the_rest_goes_on() -> None:
    world = signing_world()
    honest = [signed_batch(number) for number in range(6)]
    altered, made_up, unsigned = honest[1][0], signed_batch(3, by=signer("oslo"))[0], 5
    for number, (header, data) in enumerate(honest):
        if number == 1:
            data = resealed(altered, revision="rx")
        elif number == 3:
            # By whom does not matter: the key that it says is not the one that signed.
            forged = (made_up.fields[0]._replace(value=header.fields[0].value[:8] + bytes(64)),)
            data = resealed(header, fields=forged)
        elif number == unsigned:
            data = signed_batch(number, signs=False)[1]
        world.source.append(header, data)
    world.start()
    world.time.run_until(world.time.now + 30)
    assert world.receiver is not None
    assert world.sender is not None
    assert [name.sequence for name, _ in world.target.confirmed] == [0, 2, 4]
    assert [reason.split(":")[0] for reason in world.quarantined] == [
        "the signature is not that of 'paris'",
        "the signature is not that of 'paris'",
        "'paris' has not signed it, and this mesh signs",
    ]
    assert world.receiver.counters.not_authentic == 3
    assert world.sender.counters.acked == 6
    # None of their names is taken: the good one may come by another path.
    assert not {header.name for header, _ in (honest[1], honest[3], honest[5])} & {
        name for name, _ in world.target.confirmed
    }


def test_what_only_a_newer_mesh_file_can_judge_waits_for_it_and_nothing_is_lost() -> None:
    world = signing_world()
    for number in range(20):
        key = "paris" if number < 10 else "paris-2"
        world.source.append(*signed_batch(number, by=signer(key)))
    world.start()
    world.time.run_until(world.time.now + 30)
    assert world.sender is not None
    assert world.receiver is not None
    for said in (world.sender.reason, world.receiver.not_understood):
        assert "'paris' signs with the key" in said
        assert "does tokyo have the newest mesh file?" in said
    assert world.sender.state is LinkState.DOWN
    assert len(world.target.names) == 10
    assert world.quarantined == []
    # A thin line seldom carries it for nothing.
    sessions = world.sender.counters.sessions
    world.time.run_until(world.time.now + 3600)
    assert world.sender.counters.sessions - sessions <= 3600 / world.settings.unsure_s
    world.change_receivers_mesh(authenticity(mesh("paris", "paris-2")).check)
    world.time.run_until(world.time.now + 5)
    assert [name for name, _ in world.target.confirmed] == world.due()
    assert world.sender.state is LinkState.RUNNING
    assert world.receiver.not_understood == ""


def test_what_no_mesh_file_ever_comes_for_is_put_aside_and_the_link_goes_on() -> None:
    world = signing_world()
    for number in range(4):
        world.source.append(*signed_batch(number, by=signer("paris-2" if number < 3 else "paris")))
    world.start()
    world.time.run_until(world.time.now + world.settings.unsure_most_s - 600)
    assert world.quarantined == []
    assert len(world.target.names) == 0
    world.time.run_until(world.time.now + 1200)
    assert len(world.quarantined) == 3
    assert [name.sequence for name, _ in world.target.confirmed] == [3]


def test_a_mark_of_a_site_that_has_left_holds_nobody_up() -> None:
    world = signing_world()
    world.source.append(*signed_batch(0, kind=BatchKind.MARK, exchange="", by=signer("gone")))
    world.source.append(*signed_batch(1))
    world.start()
    world.time.run_until(world.time.now + 30)
    assert [name.sequence for name, _ in world.target.confirmed] == [1]


def test_a_new_mesh_file_of_which_the_sender_does_not_hear_is_found_out() -> None:
    world = signing_world()
    world.source.append(*signed_batch(0, by=signer("paris-2")))
    world.start()
    world.time.run_until(world.time.now + 30)
    world.check = authenticity(mesh("paris-2")).check
    world.time.run_until(world.time.now + world.settings.unsure_s)
    assert [name for name, _ in world.target.confirmed] == world.due()


def test_a_mesh_file_that_changes_nothing_here_ends_no_session() -> None:
    world = signing_world()
    world.source.append(*signed_batch(0))
    world.start()
    world.run_until_arrived(10)
    world.change_receivers_mesh(authenticity(mesh("paris", "paris-2")).check)
    world.time.run_until(world.time.now + 30)
    assert world.sender is not None
    assert world.sender.counters.sessions == 1


def test_a_neighbour_of_whom_all_is_refused_does_not_fill_the_disk() -> None:
    world = LinkWorld(settings=LinkSettings(refused_batches=20, refused_within_s=1e6))
    world.check = authenticity(mesh()).check
    for number in range(200):
        world.source.append(*signed_batch(number, signs=False))
    world.source.append(*signed_batch(200))
    world.start()
    world.time.run_until(world.time.now + 30)
    assert world.receiver is not None
    assert world.sender is not None
    assert len(world.quarantined) == 20
    assert world.receiver.counters.refused == world.sender.counters.refused == 200
    assert world.receiver.counters.refused_unkept == 180
    # Who sends it may have got it from others: what is good behind it comes through.
    assert [name.sequence for name, _ in world.target.confirmed] == [200]


def test_big_batches_count_by_their_bytes_and_a_day_later_there_is_room_again() -> None:
    budget = RefusalBudget(LinkSettings(refused_bytes=1000, refused_within_s=100))
    assert budget.keeps(999, 0.0)
    assert budget.keeps(10_001, 0.0)
    assert not budget.keeps(1, 999.0)
    assert budget.keeps(1, 1001.0)
