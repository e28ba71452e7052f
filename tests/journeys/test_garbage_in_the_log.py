"""Records in a site's log that are no batches: quarantined with their place, and passed by."""

from __future__ import annotations

from tests.journeys.application import Letter, at, counters_say
from tests.journeys.conftest import MeshFactory
from tests.log_batches import batch


async def test_what_cannot_be_read_is_quarantined_and_everything_else_goes_on(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", "lima", topology="ring")
    await mesh.listen()
    mesh.start()
    await mesh.running()
    await mesh.publish_everywhere(100)
    await mesh.arrived()

    _, sealed = batch(1, origin="oslo")
    whole_head_bad_rest = sealed[:-4] + bytes(4)
    garbage = [b"x", b"no batch at all", bytes(5000), sealed[: len(sealed) // 2]]
    log = f"isthmus.{mesh.mesh.name}.log"
    async with at(mesh, "tokyo", as_operator=True) as (intruder,):
        for record in (*garbage, whole_head_bad_rest):
            await intruder.post("", Letter(record, key=log.encode()))
        await mesh.publish_everywhere(100)
        await mesh.arrived()
        mesh.check(most_flags=0)
        kept = await intruder.consume(f"isthmus.{mesh.mesh.name}.quarantine")
        await kept.has(len(garbage) + 1)
        # As they stand in the log, which wraps what comes by AMQP.
        for record, body in zip((*garbage, whole_head_bad_rest), kept.bodies, strict=True):
            assert record in body
        assert all(m.text_header(b"x-mesh-quarantine-reason") for m in kept.got)
        await counters_say(mesh, "tokyo", quarantined=len(garbage) + 1)
    # A restart meets them again, and neither quarantines them twice nor flags what is behind.
    assert mesh.stop("tokyo") == 0
    mesh.start(list(mesh.mesh.sites))
    await mesh.running()
    await mesh.publish_everywhere(50)
    await mesh.arrived()
    mesh.check(most_flags=0)
    await counters_say(mesh, "tokyo", quarantined=0)
