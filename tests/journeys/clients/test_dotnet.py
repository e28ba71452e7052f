"""Header values in the bytes that RabbitMQ's client for .NET writes (docs/clients.md).

No such client runs here: the encodings are those of its WireFormatting.
"""

from __future__ import annotations

import struct

from relay.bulk_amqp.field_table import entry
from tests.journeys.application import at, letter
from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh

pytestmark = CLIENTS


def sized(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack(">I", len(content)) + content


VALUES = {
    "string": sized(b"S", "n\u00fa \u6771\u4eac".encode()),
    "empty string": sized(b"S", b""),
    "byte[]": sized(b"S", b"\x00\xff\xfe"),
    "BinaryTableValue": sized(b"x", b"\x00\xff\xfe"),
    "byte": b"B\xff",
    "sbyte": b"b\x80",
    "short": b"s" + struct.pack(">h", -32_768),
    "ushort": b"u" + struct.pack(">H", 65_535),
    "int": b"I" + struct.pack(">i", -(2**31)),
    "uint": b"i" + struct.pack(">I", 2**32 - 1),
    "long": b"l" + struct.pack(">q", -(2**63)),
    "float": b"f" + struct.pack(">f", 1.1),
    "double": b"d" + struct.pack(">d", -2.5e300),
    "decimal": b"D" + struct.pack(">BI", 28, 2**31 - 1),
    "bool": b"t\x01",
    "AmqpTimestamp": b"T" + struct.pack(">Q", 2**40),
    "table": sized(b"F", entry(b"deep", sized(b"F", entry(b"n", b"V")))),
    "empty table": sized(b"F", b""),
    "list": sized(b"A", b"I" + struct.pack(">i", 1) + sized(b"S", b"two") + sized(b"A", b"")),
    "null": b"V",
}
"""Tag and value by the type of C#."""


async def test_each_header_value_of_dotnet_arrives_bit_for_bit(clients: ClientsMesh) -> None:
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("dotnet", queue="inbox.dotnet")
        sent = [
            letter(name.encode(), headers=entry(b"value", value)) for name, value in VALUES.items()
        ]
        await paris.post("dotnet", *sent)
        got = await inbox.has(len(sent))
        assert {m.body.decode(): m.own_headers[b"value"] for m in got} == VALUES
        assert [m.as_sent for m in got] == [one.properties for one in sent]
