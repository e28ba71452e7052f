"""Large messages that go out without their bodies, which a site's content store keeps."""

from __future__ import annotations

from hashlib import sha256

from federation.mesh import Exchange, LargeRule
from relay.batches.mesh_headers import (
    CONTENT_BYTES_HEADER,
    CONTENT_ID_HEADER,
    CONTENT_SHA256_HEADER,
)
from relay.bulk_amqp import content_header
from relay.bulk_amqp.field_table import long_integer, long_string
from relay.content.contents import Contents, StoringRule, fetch
from relay.content.memory_content import KeptContent, MemoryContent
from relay.content.reference import id_of
from tests.relay.deliverer_world import FAST, World, entry, in_pieces, mesh
from tests.virtual_time import in_virtual_time

BODY = b"reel of a film, " * 100


@in_virtual_time
async def test_a_reference_waits_for_the_store_with_a_reason_while_other_flows_go_on() -> None:
    films = Exchange("films", retry=FAST, large=LargeRule.REFERENCE)
    world = World(mesh(films, Exchange("orders", retry=FAST)))
    store = MemoryContent(KeptContent(lambda: 0.0))
    store.away = True
    async with world.running() as life:
        life.context.contents = Contents(store, lambda: 0.0, StoringRule(1000, 60))
        small = world.batch([entry("small")], exchange="films")
        await life.log(*in_pieces(world, entry("film", BODY), exchange="films"), small)
        await life.until(
            lambda: (
                life.deliverer.standing == {"paris/films": "writing content: no quorum in memory"}
            )
        )
        assert life.context.contents.reason == "", "the site is not down"
        for number in range(3):
            await life.log(world.batch([entry(number)]))
            await life.until(lambda: len(world.delivered()) == number + 1)  # noqa: B023
        assert not world.delivered("films")
        store.away = False
        await life.until(lambda: len(world.delivered("films")) == 2)
        assert not life.deliverer.standing
    assert world.delivered("films") == ["", "body small"]
    assert world.flags("films") == [False, False]
    (_, film), _ = world.broker.messages["films.queue"]
    headers = {
        CONTENT_ID_HEADER: long_string(id_of(BODY).hex().encode()),
        CONTENT_BYTES_HEADER: long_integer(len(BODY)),
        CONTENT_SHA256_HEADER: long_string(sha256(BODY).hexdigest().encode()),
    }
    found = {name: content_header.header(film.properties, name) for name in headers}
    assert found == headers
    assert await fetch(store, id_of(BODY)) == BODY


@in_virtual_time
async def test_a_reference_that_waited_for_the_store_as_the_node_died_comes_unflagged() -> None:
    films = Exchange("films", retry=FAST, large=LargeRule.REFERENCE)
    world = World(mesh(films))
    store = MemoryContent(KeptContent(lambda: 0.0))
    store.away = True
    async with world.running() as life:
        life.context.contents = Contents(store, lambda: 0.0, StoringRule(1000, 60))
        film = [entry("film", BODY), entry("small")]
        await life.log(world.batch(film, exchange="films"))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.kill()
    store.away = False
    async with world.running() as life:
        life.context.contents = Contents(store, lambda: 0.0, StoringRule(1000, 60))
        await life.until(lambda: len(world.delivered("films")) == 2)
    assert world.flags("films") == [False, False]
