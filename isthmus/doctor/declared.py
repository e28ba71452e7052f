"""Is at the site's broker what `isthmus apply` would declare? Looks only; declares nothing."""

from __future__ import annotations

from typing import Any

from federation.brokers.addresses import AddressBook
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.passwords import PasswordMissing
from federation.brokers.provision import declarations
from isthmus.doctor.finding import Findings

_APPLY = "run `isthmus apply`"


async def examine_declared(
    api: ManagementApi, book: AddressBook, site: str, found: Findings
) -> None:
    """Exchanges, queues, bindings, users' rights."""
    declared = declarations(book.mesh, site, book.credentials, book.formerly_delivered(site))
    try:
        exchanges = {one["name"]: one for one in await api.get("exchanges", api.vhost) or []}
        queues = {one["name"]: one for one in await api.get("queues", api.vhost) or []}
        bindings = {
            (one["source"], one["destination"], one["routing_key"])
            for one in await api.get("bindings", api.vhost) or []
        }
        rights = await _rights(book, site) if declared.users else {}
    except (ManagementError, PasswordMissing) as error:
        found.unknown("declared", f"what is declared cannot be listed: {error}")
        return
    missing: list[str] = []
    for exchange in declared.exchanges:
        there = exchanges.get(exchange.name)
        if there is None:
            missing.append(f"exchange {exchange.name}")
        elif (there["type"], there["durable"]) != (exchange.type, True):
            found.fault(
                "declared",
                f"exchange {exchange.name} is {there['type']}, not {exchange.type} and durable",
                "make the mesh file say what is there, or delete it and apply",
            )
    for queue in declared.queues:
        there = queues.get(queue.name)
        if there is None:
            missing.append(f"queue {queue.name}")
        elif _differ(dict(queue.arguments), there.get("arguments") or {}):
            found.fault(
                "declared",
                f"queue {queue.name} was declared otherwise: {there.get('arguments')}",
                "stop the site's node, drain it, delete it and apply",
            )
    missing += [
        f"binding {binding}"
        for binding in declared.bindings
        if (binding.exchange, binding.queue, binding.key) not in bindings
    ]
    for user in declared.users:
        has = rights.get(user.name)
        if has is None:
            missing.append(f"user {user.name}, or its rights")
        elif any(has[key] != getattr(user, key) for key in ("configure", "write", "read")):
            missing.append(f"the present rights of user {user.name}")
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        found.fault("declared", f"missing: {', '.join(missing[:3])}{more}", _APPLY)
    else:
        found.ok("declared", f"all {len(declared.queues) + len(declared.exchanges)} are there")


async def _rights(book: AddressBook, site: str) -> dict[str, dict[str, Any]]:
    """By user. Asked as the administrator: RabbitMQ tells them to nobody else."""
    management = book.management(site)
    if management is None:
        return {}
    async with ManagementApi(management) as api:
        found = await api.get("vhosts", api.vhost, "permissions") or []
        return {one["user"]: one for one in found}


def _differ(wanted: dict[str, Any], there: dict[str, Any]) -> bool:
    return any(there.get(key) != value for key, value in wanted.items())
