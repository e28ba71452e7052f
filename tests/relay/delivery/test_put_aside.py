"""What is put aside can be read back as what it was; anything else is told apart."""

from __future__ import annotations

import pytest

from relay.batches.batch import EVERY_SITE, BatchName, Series
from relay.batches.mesh_headers import as_repaired, repaired_of
from relay.bulk_amqp.content_header import NONE_PRESENT, rewrite
from relay.delivery.properties import text_field
from relay.delivery.put_aside import put_aside
from relay.delivery.undeliverable import dead_letter, quarantined_bytes, quarantined_message
from tests.relay.deliverer_world import entry

NAMES = [
    BatchName(Series("paris", bytes(range(8)), "orders", 0, EVERY_SITE), 0),
    BatchName(Series("p.1:x", bytes(8), "a/b>c.d", 3, ("lima", "tokyo")), 2**40),
    BatchName(Series("paris", bytes(8), "", 0, ("x",)), 7),
]


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_a_batchs_name_is_read_back_from_its_text(name: BatchName) -> None:
    assert BatchName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["", "a", "a/b/c", "a/zz/c.0>*/1", "a/00/c>*/1", "a/00/c.0>*/x"])
def test_text_that_is_no_batch_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever part of it is wrong
        BatchName.parse(text)


def test_a_dead_letter_is_read_back_as_it_was_sent() -> None:
    one = entry(5)
    letter = dead_letter(one, NAMES[1], 17, ("p.1:x", "tokyo"), queue="q", reason="no", attempts=3)
    read = put_aside((9, True, "", b"q", letter.properties, letter.body))
    assert read.origin is not None
    assert (read.tag, read.reason, read.attempts, read.exchange) == (9, "no", 3, "a/b>c.d")
    assert (read.routing_key, read.properties, read.body) == one[1:4]
    assert (read.origin.name, read.origin.number) == (NAMES[1], 17)
    assert (read.origin.identity, read.origin.path) == (one.identity, ("p.1:x", "tokyo"))
    assert read.origin.published_ms == one.published_ms


def test_what_a_repair_brought_is_read_back_with_whose_it_is() -> None:
    one = as_repaired(entry(5), "lima")
    letter = dead_letter(one, NAMES[1], 17, ("p.1:x", "tokyo"), queue="q", reason="no", attempts=3)
    read = put_aside((9, True, "", b"q", letter.properties, letter.body))
    assert read.properties == one.properties
    assert repaired_of(read.properties) == "lima"


def test_each_message_of_a_batch_has_an_id_of_its_own_that_stays() -> None:
    ids = [
        put_aside((tag, False, "", b"q", kept.properties, kept.body)).id
        for number in (0, 1)
        for tag in (1, 2)
        for kept in [
            quarantined_message(
                entry(1), NAMES[0], number, ("paris",), queue="q", reason=f"because {tag}"
            )
        ]
    ]
    assert ids[0] == ids[1] != ids[2] == ids[3]


@pytest.mark.parametrize(
    "properties",
    [
        NONE_PRESENT,
        b"",
        b"\x20\x00\x00\x00\x00\xff",
        quarantined_bytes(b"", queue="q", reason="r", offset=4).properties,
        rewrite(NONE_PRESENT, {}, text_field(b"x-mesh-batch", b"?")),
        rewrite(NONE_PRESENT, {}, text_field(b"x-mesh-identity", b"not hex")),
    ],
)
def test_what_is_no_message_of_the_mesh_has_no_origin(properties: bytes) -> None:
    read = put_aside((1, False, "", b"q", properties, b"body"))
    assert (read.origin, read.body) == (None, b"body")
    assert read.reason
