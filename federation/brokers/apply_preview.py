"""What `apply` would do at a site, by asking its broker's management API. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from federation.brokers.addresses import AddressBook
from federation.brokers.apply import listed
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import (
    Declarations,
    PolicyDeclaration,
    QueueDeclaration,
    declarations,
)
from federation.brokers.users import UserDeclaration, guests
from federation.names import Names


class NotAsked(Exception):
    """Nobody can be asked at that site; the text says why."""


async def preview_site(book: AddressBook, site: str) -> list[str]:
    """One line each: `+` what is missing, `~` what would be changed, `-` what would be unbound, `!`
    what is there otherwise and apply cannot change. Empty: all is as it should be.

    Raises NotAsked, ManagementError, AddressError, PasswordMissing.
    """
    management = book.management(site)
    if management is None:
        raise NotAsked("the mesh file has no `management:` for this site")
    declared = declarations(book.mesh, site, book.credentials, book.formerly_delivered(site))
    async with ManagementApi(management) as api:
        return [
            *await _users(api, (*declared.users, *guests(book.mesh, site).values())),
            *await _exchanges_and_queues(api, declared),
            *await _bindings(api, declared, Names(book.mesh.name)),
            *[line for policy in declared.policies for line in await _policy(api, policy)],
        ]


async def _exchanges_and_queues(api: ManagementApi, declared: Declarations) -> list[str]:
    exchanges = _by_name(await api.get("exchanges", api.vhost, columns="name,type"))
    queues = _by_name(await api.get("queues", api.vhost, columns="name,arguments"))
    said = []
    for exchange in declared.exchanges:
        found = exchanges.get(exchange.name)
        if found is None:
            said.append(f"+ exchange {exchange.name}")
        elif found["type"] != exchange.type:
            said.append(f"! exchange {exchange.name}: is {found['type']}, not {exchange.type}")
    for queue in declared.queues:
        if queue.name not in queues:
            said.append(f"+ queue {queue.name}")
        else:
            said += _otherwise(queue, queues[queue.name].get("arguments") or {})
    return said


def _otherwise(queue: QueueDeclaration, there: dict[str, Any]) -> Iterator[str]:
    for key, wanted in queue.arguments.items():
        # A queue without a type is a classic one.
        found = there.get(key, "classic" if key == "x-queue-type" else None)
        if found != wanted:
            yield f"! queue {queue.name}: {key} is {found}, not {wanted}"


async def _bindings(api: ManagementApi, declared: Declarations, names: Names) -> list[str]:
    there = (await listed(api, names)).bindings
    wanted = frozenset(declared.bindings)
    missing = [f"+ binding {one}" for one in declared.bindings if one not in there]
    return missing + sorted(f"- binding {one}" for one in there - wanted)


async def _policy(api: ManagementApi, policy: PolicyDeclaration) -> list[str]:
    found = await api.get("policies", api.vhost, policy.name)
    if found is None:
        return [f"+ policy {policy.name}"]
    wanted = {
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "apply-to": policy.apply_to,
        "priority": policy.priority,
    }
    return [
        f"~ policy {policy.name}: {key} {found.get(key)} -> {value}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]


async def _users(api: ManagementApi, users: tuple[UserDeclaration, ...]) -> list[str]:
    """Of private brokers, and of other sites' ends of links."""
    said = []
    for user in users:
        try:
            if await api.get("users", user.name) is None:
                said.append(f"+ user {user.name}")
            found = await api.get("permissions", api.vhost, user.name)
        except ManagementError as error:
            return [f"? users: {error}"]
        wanted = {"configure": user.configure, "write": user.write, "read": user.read}
        if found is None:
            said.append(f"+ rights {user.name}")
        elif any(found.get(key) != value for key, value in wanted.items()):
            said.append(f"~ rights {user.name}")
    return said


def _by_name(found: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found or ()}
