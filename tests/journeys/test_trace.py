"""What real nodes write down tells the whole life of a message, over several links."""

from __future__ import annotations

import uuid

import pytest

from isthmus.commands.trace import identities_of
from spark_audit.ledger_search import LedgerSearch
from spark_audit.trace import TracedMessage, trace
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.waiting import until

pytestmark = pytest.mark.any_release

LINE = ("paris", "tokyo", "lima")
SIZES = {"small": 100, "in pieces": 2_500_000}


async def test_a_message_is_traced_from_end_to_end(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*LINE, topology="ring")  # one way round: to lima over tokyo
    mesh.start_each()
    await mesh.running()
    ids = {kind: str(uuid.uuid4()) for kind in SIZES}
    async with at(mesh, *LINE) as (paris, tokyo, lima):
        boxes = [await tokyo.listen("orders"), await lima.listen("orders")]
        for kind, message_id in ids.items():
            await paris.post("orders", letter(bytes(SIZES[kind]), message_id))
        await until(lambda: all(len(box.got) == len(ids) for box in boxes), mesh.logs, 60)
    for site in LINE:
        assert mesh.stop(site) == 0
    search = LedgerSearch.open(str(mesh.state / "sites"))
    assert search.sites == sorted(LINE)
    for message_id in ids.values():
        found = trace(search, list(identities_of(message_id)))
        assert found.bad == {}
        (message,) = found.messages
        check(message)
    nobody = trace(search, list(identities_of(str(uuid.uuid4()))))
    assert nobody.messages == []
    assert nobody.files > 0


def check(message: TracedMessage) -> None:
    done = [(step.what, step.site) for step in message.steps]
    assert ("missing", "lima") not in done, message
    assert done.count(("published", "paris")) == 1
    settled = {step.site: step for step in message.steps if step.what == "settled"}
    assert settled["paris"].text.startswith("its own")
    for site in ("tokyo", "lima"):
        assert settled[site].text.startswith("delivered"), message
        assert settled[site].content == settled["paris"].content
    assert settled["lima"].path == ("paris", "tokyo", "lima")
    for site in ("tokyo", "lima"):
        assert ("came", site) in done, message
    # One machine, so one clock. But a site records a little after the deed: what came over a link,
    # with up to a second of others; what it packed, when its log has confirmed that, and the packer
    # has waited 10 ms for more. The sites behind it may have delivered the message by then.
    for step in [("packed", "paris"), ("settled", "lima")]:
        assert done.index(("published", "paris")) < done.index(step), done
    assert message.steps[0].at_ms == message.published_ms
