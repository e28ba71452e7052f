"""AMQP 1.0: messages of a client at one site, as others get them at another (docs/clients.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from federation.names import Names
from tests.journeys.application import at, letter
from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh
from tests.journeys.clients.described import described, own_headers
from tests.journeys.clients.java import run_java
from tests.waiting import until

pytestmark = CLIENTS
TYPES = (
    *("string", "true", "false", "ubyte", "ushort", "uint", "ulong", "ulong-small", "byte"),
    *(
        "short",
        "int",
        "long",
        "float",
        "double",
        "timestamp",
        "binary",
        "symbol",
        "null",
        "decimal",
    ),
)
CASES = (
    *(f"type {name}" for name in TYPES),
    *("annotations", "footer", "data", "data twice", "no body bytes", "value string", "value map"),
    *("value null", "value binary", "sequence", "header", "no properties", "not durable"),
    *("properties", "id uuid", "id binary", "id string uuid"),
)
OF_3 = ("type char", "type uuid")
"""Names of messages that only 3.10 carries: 4.3 can give them to no consumer by AMQP 0-9-1."""
OF_4 = ("value list", "id ulong")
"""Names of messages that only 4.3 carries: 3.10 ends a session over each."""

AGAIN = {
    "again uuid": "00112233-4455-6677-8899-aabbccddee03",
    "again string uuid": "00112233-4455-6677-8899-aabbccddee04",
}
"""Message IDs of messages to be sent twice, by name."""

UNTOLD = ("outcome", "durable", "priority", "ttl")
"""Parts that a receiver has by default where the sender gave none."""
ADDED_BY_4 = (
    *("user-id", "annotation x-routing-key", "annotation x-exchange", "annotation x-basic-type"),
    *("annotation x-mesh-exchange", "annotation x-mesh-path"),
)
Parts = dict[str, tuple[str, str]]


def parts_of(lines: list[list[str]], which: str) -> dict[str, Parts]:
    """Parts (type and value) of the messages by name, as the Java program prints them."""
    found: dict[str, Parts] = defaultdict(dict)
    for direction, name, part, kind, *value in lines:
        if direction == which:
            found[name][part] = (kind, "".join(value))
    return found


async def exchanged(
    clients: ClientsMesh, classes: Path, queue: str, count: str, *cases: str, admin: bool = False
) -> list[list[str]]:
    """Send these at paris, and receive `count` messages from the queue at tokyo, or take one of
    them; as administrator, from a queue at paris.
    """
    old = clients.release < (4, 0)
    receiver = (*clients.login("tokyo"), clients.vhost("tokyo").name)
    if admin:
        uri = urlsplit(clients.mesh.book.administrator("paris").uri)
        receiver = (*map(unquote, (uri.username or "", uri.password or "", uri.path[1:])),)
    return await run_java(
        classes,
        "Amqp10Client",
        *("127.0.0.1", str(clients.vhost("paris").amqp_port)),
        "/exchange/amqp10/ones.any" if old else "/exchanges/amqp10/ones.any",
        f"/amq/queue/{queue}" if old else f"/queues/{queue}",
        count,
        *(*clients.login("paris"), clients.vhost("paris").name),
        *receiver,
        *cases,
    )


async def test_amqp_1_0_messages_reach_amqp_1_0_and_0_9_1_consumers_at_another_site(
    clients: ClientsMesh, java_classes: Path
) -> None:
    old = clients.release < (4, 0)
    cases = (*CASES, *(OF_3 if old else OF_4))
    refused = "value list" if old else "annotation without x-"
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("amqp10", "ones.#", queue="inbox.amqp10.091")
        await tokyo.declare("inbox.amqp10", "amqp10", "ones.#")
        plain = letter(b"plain", key=b"ones.plain", case=b"by 0-9-1", why=b"late")
        await paris.post("amqp10", plain)
        lines = await exchanged(
            clients, java_classes, "inbox.amqp10", str(len(cases) + 1), *cases, refused
        )
        arrived = await inbox.has(len(cases) + 1)
    sent, got = parts_of(lines, "sent"), parts_of(lines, "got")
    assert sent.pop(refused)["outcome"][1] == "FAILED"
    assert {name: parts["outcome"][1] for name, parts in sent.items()} == dict.fromkeys(
        cases, "ACCEPTED"
    )
    header = {part: got["header"][part][1] for part in ("durable", "priority")}
    assert header == {"durable": "true", "priority": "7"}
    assert 86_400_000 - 180_000 < int(got["header"]["ttl"][1]) < 86_400_000
    by_body = {one.body: described(one) for one in arrived}
    left = by_body[b"header"]
    assert (left["delivery_mode"], left["priority"]) == (2, 7)
    assert 86_400_000 - 180_000 < int(left["expiration"]) < 86_400_000
    changes = {
        name: {
            part: got[name][part][1] if part in got[name] else "absent"
            for part in {**parts, **got[name]}
            if part not in UNTOLD and parts.get(part, ())[1:] != got[name].get(part, ())[1:]
        }
        for name, parts in sent.items()
        if name in got
    }
    by_name = {own_headers(one).get("case", ""): one for one in arrived}
    if old:
        # A message without a section of properties gets one with a user-id that is a string: this
        # client takes no such thing.
        assert got.pop("").keys() == {"unreadable"}
        assert sent.keys() - got.keys() == {"no properties"}
        assert {name: change for name, change in changes.items() if change} == {
            "data twice": {"body": "Data 74776f; Data 6f6e652c"},
        }
        assert got["type timestamp"]["property value"] == ("Long", "1700000000123")
        # All of AMQP 1.0 is in headers, in its own encoding.
        whole = next(one for one in arrived if b"order 4711" in one.properties)
        assert described(whole) == {
            "content_type": b"application/json",
            "content_encoding": b"gzip",
            "correlation_id": b"request 12",
            "reply_to": b"/queues/answers",
            "message_id": b"order 4711",
            "timestamp": 1_700_000_000_123,
            "type": b"binary",
        }
        assert own_headers(whole).keys() == {"x-amqp-1.0-app-properties", "x-amqp-1.0-properties"}
        assert by_body[b"bytes"]["type"] == b"binary"
        assert by_body[b"\x00Sw\xa1\x08a string"]["type"] == b"amqp-1.0"
        assert by_body[b"\x00Su\xa0\x03two\x00Su\xa0\x04one,"]["type"] == b"amqp-1.0"
        uuid = sent["id uuid"]["message-id"][1]
        assert by_body[b"id uuid"]["message_id"] == UUID(uuid).bytes
        assert by_body[b"id binary"]["message_id"] == b"\xc8\x01\x02"
        return
    assert got["by 0-9-1"]["property why"] == ("String", "late")
    assert got["by 0-9-1"]["annotation x-mesh-path"] == ("String", "paris,tokyo")
    for name, change in changes.items():
        for part in ADDED_BY_4:
            change.pop(part, None)
        assert change.pop("subject", "null") == "null", name
    assert {name: change for name, change in changes.items() if change} == {
        "type ulong": {"property value": "-1"},
        "type decimal": {"property value": "absent"},
        "footer": {"footer x-foot": "absent"},
        "data twice": {"body": "Data 6f6e652c74776f"},
        "type timestamp": {"property value": "1700000000000"},
        "properties": {
            "to": "null",
            "creation-time": "1700000000000",
            "absolute-expiry-time": "0",
            "group-sequence": "0",
            "reply-to-group-id": "null",
        },
        "id binary": {
            "message-id": "null",
            "correlation-id": "null",
            "annotation x-message-id": "c80102",
            "annotation x-correlation-id": "c80102",
        },
    }
    kinds = {name: got[f"type {name}"]["property value"][0] for name in TYPES if name != "decimal"}
    assert (kinds["ulong-small"], kinds["symbol"], kinds["ubyte"]) == (
        *("Long", "String", "UnsignedByte"),
    )
    assert got["id ulong"]["message-id"] == ("String", "4711")
    assert got["id uuid"]["message-id"] == sent["id uuid"]["message-id"]
    assert own_headers(by_name["type uint"])["value"] == 4_000_000_000
    assert by_name["value string"].body == b"\x00Sw\xa1\x08a string"
    assert described(by_name["value string"]) == {"type": b"amqp-1.0"}
    assert (by_name["data"].body, by_name["data twice"].body) == (b"bytes", b"one,two")
    assert own_headers(by_name["annotations"]) == {
        "case": "annotations",
        "x-text": "of the publisher",
        "x-number": 42,
        "x-list": ["a", "b"],
    }
    assert described(by_name["properties"]) == {
        "content_type": b"application/json",
        "content_encoding": b"gzip",
        "correlation_id": b"request 12",
        "reply_to": b"answers",
        "message_id": b"order 4711",
        "timestamp": 1_700_000_000,
        "app_id": b"group",
    }
    assert described(by_name["id uuid"])["message_id"].startswith(b"urn:uuid:00112233-")
    assert described(by_name["id ulong"])["message_id"] == b"4711"


async def test_a_uuid_that_amqp_1_0_sends_twice_arrives_once_as_a_string_or_from_4_on(
    clients: ClientsMesh, java_classes: Path
) -> None:
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("amqp10", "ones.any", queue="inbox.amqp10.again")
        await tokyo.declare("inbox.amqp10.idle")
        for _ in range(2):
            lines = await exchanged(clients, java_classes, "inbox.amqp10.idle", "0", *AGAIN)
            sent = parts_of(lines, "sent")
            outcomes = {name: parts["outcome"][1] for name, parts in sent.items()}
            assert outcomes == dict.fromkeys(AGAIN, "ACCEPTED")
        # By AMQP 0-9-1 the same UUID is the same message.
        for case, message_id in AGAIN.items():
            await paris.post("amqp10", letter(case.encode(), message_id, key=b"ones.any"))
        await paris.post("amqp10", letter(b"last", key=b"ones.any"))
        await until(lambda: inbox.bodies[-1:] == [b"last"], lambda: str(inbox.bodies), 60)
    assert Counter(inbox.bodies) == {
        b"again string uuid": 1,
        b"again uuid": 3 if clients.release < (4, 0) else 1,
        b"last": 1,
    }
    if clients.release >= (4, 0):
        message_ids = {one.body: described(one).get("message_id") for one in inbox.got}
        assert message_ids[b"again uuid"] == UUID(AGAIN["again uuid"]).urn.encode()


async def test_a_value_that_no_amqp_0_9_1_consumer_can_be_given_stops_its_site_until_taken_out(
    clients: ClientsMesh, java_classes: Path
) -> None:
    mesh = clients.mesh
    egress = Names(mesh.mesh.name).egress("amqp10")
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("amqp10", "ones.after", queue="inbox.amqp10.after")
        try:
            for case in ("id ulong",) if clients.release < (4, 0) else OF_3:
                await exchanged(clients, java_classes, egress, "0", case, admin=True)
                await mesh.until_told(
                    lambda found: "by AMQP 1.0" in found["sites"]["paris"].get("reason", ""),
                    "the broker ends the packer's connection",
                )
                assert mesh.stop("paris") in (0, 1)
                # AMQP 1.0 can: an administrator takes the message out of egress by it.
                taken = (egress, f"find:{case}", "none")
                lines = await exchanged(clients, java_classes, *taken, admin=True)
                assert case in parts_of(lines, "got")
                mesh.start(["paris"])
                await mesh.running()
                await paris.post("amqp10", letter(case.encode(), key=b"ones.after"))
                await until(lambda one=case: inbox.bodies[-1:] == [one.encode()], case, 60)
        finally:
            await clients.vhost("paris").api("DELETE", f"/queues/{{vhost}}/{egress}/contents")
            if "paris" not in mesh.processes:
                mesh.start(["paris"])
            await mesh.running()
