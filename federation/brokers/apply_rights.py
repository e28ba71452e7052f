"""Users, rights and policies: what only the management API can set."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable
from typing import Any

from federation.brokers.apply_report import Item, Outcome
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import PolicyDeclaration
from federation.brokers.users import UserDeclaration, password_hash
from federation.names import Names


async def apply_users(
    api: ManagementApi,
    users: Iterable[UserDeclaration],
    by_hand: str = "let its administrator make it",
) -> list[Item]:
    """Users with their passwords and tags, and their rights in the site's virtual host. `by_hand`:
    what to do where that is refused.
    """
    items: list[Item] = []
    for user in users:
        try:
            items.append(await _user(api, user))
            items.append(await apply_rights(api, user))
        except ManagementError as error:
            items.append(unchecked("user", user.name, error, by_hand))
    return items


async def guests_left_over(
    api: ManagementApi, users: Collection[UserDeclaration], names: Names, control: str
) -> list[Item]:
    """Neighbours that still have rights here though no link of the file meets here, the last one
    among them. `control`: what commands for the broker begin with.
    """
    try:
        found = await api.get("vhosts", api.vhost, "permissions") or []
    except ManagementError:
        # Said already: without these rights, apply_users could do nothing either.
        return []
    wanted = {user.name for user in users}
    return [
        Item(
            "rights",
            one["user"],
            Outcome.LEFT,
            "no link of the file brings this neighbour here, and its rights are still there",
            f"{control} clear_permissions -p {api.vhost} {one['user']}",
        )
        for one in found
        if one["user"].startswith(names.link_users_prefix) and one["user"] not in wanted
    ]


async def apply_policies(api: ManagementApi, policies: Iterable[PolicyDeclaration]) -> list[Item]:
    """Policies; one that is there and says something else is changed."""
    items: list[Item] = []
    for policy in policies:
        try:
            items.append(await _policy(api, policy))
        except ManagementError as error:
            items.append(unchecked("policy", policy.name, error, by_hand(policy, api.vhost)))
    return items


async def policy_in_force(api: ManagementApi, queue: str, ours: PolicyDeclaration) -> list[Item]:
    """Whether ours is the policy that holds for the queue: of several that match, the one with
    the highest priority wins and the others say nothing.
    """
    try:
        policies = await api.get("policies", api.vhost) or []
    except ManagementError as error:
        return [unchecked("policy", ours.name, error, "")]
    return [
        Item(
            "policy",
            ours.name,
            Outcome.DIFFERS,
            f"the policy {other['name']!r} holds for {queue} instead",
            f"give {other['name']!r} a priority below {ours.priority}, or a pattern that leaves "
            "out names that begin with isthmus.",
        )
        for other in policies
        if other["name"] != ours.name
        and other["priority"] >= ours.priority
        and other["apply-to"] in ("queues", "streams", "all")
        and _matches(other["pattern"], queue)
    ]


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        # PCRE knows more than Python does. Better to name one policy too many.
        return True


def unchecked(kind: str, name: str, why: ManagementError | str, mend: str) -> Item:
    """What could not be looked at."""
    return Item(kind, name, Outcome.UNCHECKED, str(why), mend)


def by_hand(policy: PolicyDeclaration, vhost: str) -> str:
    """The command with which the broker's administrator sets the policy."""
    definition = json.dumps(dict(policy.definition))
    return (
        f"rabbitmqctl set_policy -p {vhost} --priority {policy.priority} "
        f"--apply-to {policy.apply_to} {policy.name} '{policy.pattern}' '{definition}'"
    )


async def _user(api: ManagementApi, user: UserDeclaration) -> Item:
    found = await api.get("users", user.name)
    if found is not None and _has_password(found, user.password) and _tags(found) == set(user.tags):
        return Item("user", user.name, Outcome.THERE)
    await api.put("users", user.name, body={"password": user.password, "tags": ",".join(user.tags)})
    if found is None:
        return Item("user", user.name, Outcome.CREATED)
    return Item("user", user.name, Outcome.CHANGED, "it had another password or other tags")


def _has_password(found: dict[str, Any], password: str) -> bool:
    if found.get("hashing_algorithm") != "rabbit_password_hashing_sha256":
        return False
    try:
        salt = base64.b64decode(found.get("password_hash") or "", validate=True)[:4]
    except binascii.Error:
        return False
    return password_hash(password, salt) == found.get("password_hash")


def _tags(found: dict[str, Any]) -> set[str]:
    tags = found.get("tags") or []
    # A list, except in versions before 3.9: there, text.
    return set(tags.split(",")) - {""} if isinstance(tags, str) else set(tags)


async def apply_rights(api: ManagementApi, user: UserDeclaration) -> Item:
    """Its rights in the site's virtual host. Raises ManagementError."""
    wanted = {"configure": user.configure, "write": user.write, "read": user.read}
    found = await api.get("permissions", api.vhost, user.name)
    if found is not None and all(found.get(key) == value for key, value in wanted.items()):
        return Item("rights", user.name, Outcome.THERE)
    await api.put("permissions", api.vhost, user.name, body=wanted)
    return Item("rights", user.name, Outcome.CREATED if found is None else Outcome.CHANGED)


async def _policy(api: ManagementApi, policy: PolicyDeclaration) -> Item:
    wanted = {
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "apply-to": policy.apply_to,
        "priority": policy.priority,
    }
    found = await api.get("policies", api.vhost, policy.name)
    if found is not None and all(found.get(key) == value for key, value in wanted.items()):
        return Item("policy", policy.name, Outcome.THERE)
    await api.put("policies", api.vhost, policy.name, body=wanted)
    if found is None:
        return Item("policy", policy.name, Outcome.CREATED, _said(wanted))
    return Item("policy", policy.name, Outcome.CHANGED, f"{_said(found)} is now {_said(wanted)}")


def _said(policy: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in policy.get("definition", {}).items())
