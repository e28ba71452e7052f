"""RabbitMQ's client for Java: confirms, mandatory, and all types of headers (docs/clients.md)."""

from __future__ import annotations

from pathlib import Path

import pytest_asyncio

from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh
from tests.journeys.clients.java import run_java

pytestmark = CLIENTS
TYPES = {
    "integer": "Integer",
    "long": "Long",
    "short": "Short",
    "byte": "Byte",
    "decimal": "BigDecimal",
    "date": "Date",
    "boolean": "Boolean",
    "float": "Float",
    "double": "Double",
    "null": "null",
    "string": "String",
    "empty": "String",
    "bytes": "byte[]",
    "map": "Map",
    "list": "List",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lines(clients: ClientsMesh, java_classes: Path) -> list[list[str]]:
    """Lines of one run of the program."""
    mesh = clients.mesh
    return await run_java(java_classes, "RabbitClient", mesh.uri("paris"), mesh.uri("tokyo"))


async def test_a_message_that_java_sends_twice_arrives_once(lines: list[list[str]]) -> None:
    assert [line[1] for line in lines if line[0] == "key"] == ["java.types", "java.last"]


async def test_what_java_publishes_comes_to_java_at_another_site_with_types_and_values(
    lines: list[list[str]],
) -> None:
    sent = {tuple(line[1:3]): line[3:] for line in lines if line[0] == "sent"}
    got = {tuple(line[1:3]): line[3:] for line in lines if line[0] == "got"}
    of_the_mesh = {name for name in got if name[1].startswith("x-mesh-")}
    own = {name: got[name] for name in got.keys() - of_the_mesh}
    assert own.keys() == sent.keys()
    assert {name: own[("header", name)][0] for name in TYPES} == TYPES
    assert own == sent
    assert got[("header", "x-mesh-path")] == ["String", "paris,tokyo"]
    # All were confirmed. Only a message that is to leave no site can be returned: any other has the
    # egress queue for a destination.
    assert [line for line in lines if line[0] in ("confirmed", "returned")] == [
        ["confirmed"],
        ["returned", "keyed stays"],
    ]
