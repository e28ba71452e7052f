"""Examination of a site's broker by its management API: version, plugins, alarms, disk, clock,
foreign settings in the mesh's way, and declarations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from federation.brokers.addresses import AddressBook, packer_user
from federation.brokers.credentials import PasswordMissing
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import declarations
from federation.mesh import Mesh, PriorityRule
from federation.names import Names, slot_names
from federation.wording import counted, few
from isthmus.clocks import CLOCKS_MAY_DIFFER
from isthmus.doctor.broker_nodes import examine_members, examine_nodes
from isthmus.doctor.finding import Findings

OLDEST = (3, 10)
HONOURS_PRIORITIES = (4, 0)
"""Release since which quorum queues honour priorities: two classes, 32 since 4.3."""
STATISTICS_LAG_S = 12.0
"""Age (s) of statistics at most: RabbitMQ collects every five seconds, later when busy."""
ASKED_AGAIN_AFTER_S = 1.0
_HARMFUL = {
    "message-ttl": "drops messages after a while",
    "expires": "deletes the queue when nobody uses it",
    "max-length": "drops or refuses messages beyond a number",
    "max-length-bytes": "drops or refuses messages beyond a size",
    "dead-letter-exchange": "leads messages elsewhere",
    "delivery-limit": "drops messages that come back too often",
}


async def examine_broker(
    api: ManagementApi,
    mesh: Mesh,
    found: Findings,
    now: Callable[[], datetime],
    believed_at: float,
    say: Callable[[str], None],
) -> None:
    """Examine everything; facts hidden from the user become unknown, with the missing tag.

    `believed_at` (the event loop's time) is when statistics cover all that happened before the
    examination: see STATISTICS_LAG_S. `say` receives the reason for a wait.
    """
    try:
        await _version(api, mesh, found)
        await examine_nodes(api, mesh, found)
        await _examine_statistics(api, mesh, found, believed_at, say)
    except ManagementError as error:
        found.unknown(
            "broker",
            f"the management API does not tell: {error}",
            "give its user the tag `monitoring`, or correct `management:`",
        )
        return
    try:
        difference = await api.date() - now()
    except ManagementError as error:
        found.unknown("clock", str(error))
        return
    if abs(difference) > CLOCKS_MAY_DIFFER:
        found.warn(
            "clock",
            f"the broker's differs from this machine's by {difference.total_seconds():+.0f} s",
            "let both follow a time server: times in the ledger and the age of messages are told "
            "by these clocks",
        )
    else:
        found.ok("clock", "as this machine's")


async def _examine_statistics(
    api: ManagementApi,
    mesh: Mesh,
    found: Findings,
    believed_at: float,
    say: Callable[[str], None],
) -> None:
    """Examine queues' statistics, which are some seconds old.

    Just after `apply` the statistics lack its policies: a fault counts only when it stays.
    """
    while True:
        late = Findings(found.site)
        for examine in (_disk, _policies, _queues, examine_members, _consumers):
            await examine(api, mesh, late)
        left_s = believed_at - asyncio.get_running_loop().time()
        if late.well or left_s <= 0:
            found.all += late.all
            return
        say(f"its statistics may be old: asking again for up to {left_s:.0f} s")
        await asyncio.sleep(ASKED_AGAIN_AFTER_S)


async def _version(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    overview = await api.get("overview") or {}
    version = str(overview.get("rabbitmq_version", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not numbers:
        found.unknown("version", "the broker does not say its version")
    elif numbers < OLDEST:
        found.fault("version", f"RabbitMQ {version} is too old", "upgrade to 3.10 or later")
    else:
        found.ok("version", f"RabbitMQ {version}")
        _priorities(numbers, mesh, found)


def _priorities(release: tuple[int, ...], mesh: Mesh, found: Findings) -> None:
    """Name the exchanges that lose their order where publishers set priorities."""
    names = [
        exchange.name
        for exchange in mesh.exchanges.values()
        if exchange.leaves(found.site) and exchange.priorities is PriorityRule.KEEP
    ]
    if names and release >= HONOURS_PRIORITIES:
        found.ok(
            "priorities",
            "this release hands out by publishers' `priority` what waits in egress, not in order, "
            f"of {', '.join(names)} (`priorities: order` of an exchange keeps its order)",
        )


async def _disk(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    nodes: list[dict[str, Any]] = await api.get("nodes") or []
    for node in nodes:
        if not node.get("running", False):
            continue
        name, free, limit = node["name"], node.get("disk_free"), node.get("disk_free_limit")
        if node.get("disk_free_alarm"):
            found.fault(
                "disk",
                f"{name} has a disk alarm: it takes no messages",
                "free disk there; `isthmus plan` says what the outage window needs",
            )
        elif not isinstance(free, int) or not isinstance(limit, int):
            # The node has just started, or cannot ask its system.
            found.unknown("disk", f"{name} does not say how much is free")
        elif free < 2 * limit:
            found.warn(
                "disk",
                f"{name} has {_size(free)} free, and stops taking messages at {_size(limit)}",
                "free disk there, or shorten outage_window",
            )
        else:
            found.ok("disk", f"{name} has {_size(free)} free")


async def _policies(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    """Examine the effect of policies on the mesh's queues, as RabbitMQ reports for each."""
    names = Names(mesh.name)
    logs = {slot.log for slot in slot_names(mesh, found.site)}
    queues: list[dict[str, Any]] = (
        await api.get(
            "queues",
            api.vhost,
            columns="name,policy,operator_policy,effective_policy_definition,arguments",
        )
        or []
    )
    for queue in queues:
        if not queue["name"].startswith(names.prefix):
            continue
        effective = queue.get("effective_policy_definition") or {}
        whose = queue.get("operator_policy") or queue.get("policy")
        if queue["name"] in logs:
            _retention(effective, mesh, whose, found)
            continue
        for key, harm in _HARMFUL.items():
            if key in effective:
                found.fault(
                    "policies",
                    f"policy {whose!r} sets {key} for {queue['name']}, which {harm}",
                    f"give {whose!r} a pattern that leaves out names that begin with isthmus.",
                )


def _retention(effective: dict[str, Any], mesh: Mesh, whose: str | None, found: Findings) -> None:
    age = str(effective.get("max-age", ""))
    kept_s = _seconds(age)
    if not age:
        found.fault(
            "retention",
            "no policy says how long the log is kept: it grows till the disk is full",
            "run `isthmus apply`",
        )
    elif kept_s is None or kept_s < mesh.outage_window_s:
        found.fault(
            "retention",
            f"policy {whose!r} keeps the log for {age}, less than the outage window of "
            f"{mesh.outage_window_s:g} s",
            "run `isthmus apply`; if another policy holds, lower its priority",
        )
    elif "max-length-bytes" in effective and mesh.sites[found.site].log.max_bytes is None:
        found.warn(
            "retention",
            f"policy {whose!r} limits the log to {_size(int(effective['max-length-bytes']))}",
            "`isthmus plan` says what the outage window needs; what is cut off early is a gap",
        )
    else:
        found.ok("retention", f"the log is kept for {age}")


async def _queues(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    names = Names(mesh.name)
    aside = {
        queue: what
        for slot in slot_names(mesh, found.site)
        for queue, what in ((slot.dead_letters, "dead-letters"), (slot.quarantine, "quarantine"))
    }
    queues: list[dict[str, Any]] = (
        await api.get("queues", api.vhost, columns="name,state,leader,messages,type") or []
    )
    for queue in queues:
        if not queue["name"].startswith(names.prefix):
            continue
        if queue.get("state") in ("down", "minority"):
            found.fault(
                "queues",
                f"{queue['name']} has no leader ({queue['state']})",
                "start the cluster's other nodes: a majority of its members must run",
            )
        what = aside.get(queue["name"])
        if what is not None and queue.get("messages"):
            found.warn(
                what,
                f"{counted(queue['messages'], 'message')} put aside there",
                f"look: `isthmus {what} list FILE --site {found.site}`",
            )


async def _consumers(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    """Find foreign consumers of egress queues, which take messages away from the mesh."""
    names, own = Names(mesh.name), packer_user(mesh, found.site)
    consumers: list[dict[str, Any]] = await api.get("consumers", api.vhost) or []
    for consumer in consumers:
        queue = consumer["queue"]["name"]
        channel = consumer.get("channel_details") or {}
        if queue.startswith(names.egress_prefix) and channel.get("user", own) != own:
            found.fault(
                "egress",
                f"user {channel['user']!r} ({channel.get('connection_name', '?')}) consumes "
                f"{queue}: what it takes does not leave the site",
                "end that consumer: applications bind queues of their own to the exchange",
            )


def _seconds(age: str) -> float | None:
    """Parse an age of RabbitMQ: a number and one of Y M D h m s."""
    match = re.fullmatch(r"(\d+)([YMDhms])", age)
    units = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}
    return int(match[1]) * units[match[2]] if match else None


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


_APPLY = "run `isthmus apply`"


async def examine_declared(
    api: ManagementApi, book: AddressBook, site: str, found: Findings
) -> None:
    """Compare exchanges, queues, bindings and users' rights with what apply would declare; declare
    nothing.
    """
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
        elif _differ(user.rights, has):
            missing.append(f"the present rights of user {user.name}")
    if missing:
        found.fault("declared", f"missing: {few(missing)}", _APPLY)
    else:
        found.ok("declared", f"all {len(declared.queues) + len(declared.exchanges)} are there")


async def _rights(book: AddressBook, site: str) -> dict[str, dict[str, Any]]:
    """Return rights by user, read as administrator: RabbitMQ shows them to no other user."""
    management = book.management(site)
    if management is None:
        return {}
    async with ManagementApi(management) as api:
        found = await api.get("vhosts", api.vhost, "permissions") or []
        return {one["user"]: one for one in found}


def _differ(wanted: dict[str, Any], there: dict[str, Any]) -> bool:
    return any(there.get(key) != value for key, value in wanted.items())
