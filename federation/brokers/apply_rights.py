"""Users, rights and policies: set through the management API, or with commands to run by hand."""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from federation.brokers.addresses import AddressBook
from federation.brokers.apply_report import Item, ItemOutcome
from federation.brokers.credentials import PasswordMissing, resolve_password
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import POLICY_PRIORITY, PolicyDeclaration
from federation.brokers.users import UserDeclaration, guests, password_hash
from federation.names import Names


async def apply_users(
    api: ManagementApi,
    users: Iterable[UserDeclaration],
    by_hand: str = "let its administrator make it",
) -> list[Item]:
    """Set users with their passwords and tags, and their rights in the site's virtual host.
    `by_hand`: remedy where the broker refuses.
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
    """Find neighbours that still have rights here though no link of the file meets here. `control`:
    beginning of a command for the broker.
    """
    try:
        found = await api.get("vhosts", api.vhost, "permissions") or []
    except ManagementError:
        # Reported already: without these rights, apply_users could do nothing either.
        return []
    wanted = {user.name for user in users}
    return [
        Item(
            "rights",
            row["user"],
            ItemOutcome.LEFT,
            "no link of the file brings this neighbour here, and its rights are still there",
            f"{control} clear_permissions -p {api.vhost} {row['user']}",
        )
        for row in found
        if row["user"].startswith(names.link_users_prefix) and row["user"] not in wanted
    ]


async def apply_policies(api: ManagementApi, policies: Iterable[PolicyDeclaration]) -> list[Item]:
    """Set policies; change a present policy with another definition."""
    items: list[Item] = []
    for policy in policies:
        try:
            items.append(await _policy(api, policy))
        except ManagementError as error:
            items.append(unchecked("policy", policy.name, error, by_hand(policy, api.vhost)))
    return items


async def policy_in_force(api: ManagementApi, queue: str, ours: PolicyDeclaration) -> list[Item]:
    """Find other policies that hold for the queue instead of `ours`: of several policies that
    match, the highest priority wins and the others have no effect.
    """
    try:
        policies = await api.get("policies", api.vhost) or []
    except ManagementError as error:
        return [unchecked("policy", ours.name, error, "")]
    return [
        Item(
            "policy",
            ours.name,
            ItemOutcome.DIFFERS,
            f"the policy {other['name']!r} holds for {queue} instead",
            f"give {other['name']!r} a priority below {POLICY_PRIORITY}, or a pattern that leaves "
            "out names that begin with isthmus.",
        )
        for other in policies
        if other["name"] != ours.name
        and other["priority"] >= POLICY_PRIORITY
        and other["apply-to"] in ("queues", "streams", "all")
        and _matches(other["pattern"], queue)
    ]


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        # PCRE has syntax that Python lacks: better name a policy too many.
        return True


def unchecked(kind: str, name: str, why: ManagementError | str, mend: str) -> Item:
    """Return the item of an object that could not be examined."""
    return Item(kind, name, ItemOutcome.UNCHECKED, str(why), mend)


def by_hand(policy: PolicyDeclaration, vhost: str) -> str:
    """Return the command with which the broker's administrator sets the policy."""
    definition = json.dumps(dict(policy.definition))
    return (
        f"rabbitmqctl set_policy -p {vhost} --priority {POLICY_PRIORITY} "
        f"--apply-to queues {policy.name} '{policy.pattern}' '{definition}'"
    )


async def _user(api: ManagementApi, user: UserDeclaration) -> Item:
    found = await api.get("users", user.name)
    if found is not None and _has_password(found, user.password) and _tags(found) == set(user.tags):
        return Item("user", user.name, ItemOutcome.THERE)
    await api.put("users", user.name, body={"password": user.password, "tags": ",".join(user.tags)})
    if found is None:
        return Item("user", user.name, ItemOutcome.CREATED)
    return Item("user", user.name, ItemOutcome.CHANGED, "it had another password or other tags")


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
    """Set a user's rights in the site's virtual host. Raises ManagementError."""
    wanted, found = user.rights, await api.get("permissions", api.vhost, user.name)
    if found is not None and all(found.get(key) == value for key, value in wanted.items()):
        return Item("rights", user.name, ItemOutcome.THERE)
    await api.put("permissions", api.vhost, user.name, body=wanted)
    return Item("rights", user.name, ItemOutcome.CREATED if found is None else ItemOutcome.CHANGED)


async def _policy(api: ManagementApi, policy: PolicyDeclaration) -> Item:
    wanted, found = policy.body, await api.get("policies", api.vhost, policy.name)
    if found is not None and all(found.get(key) == value for key, value in wanted.items()):
        return Item("policy", policy.name, ItemOutcome.THERE)
    await api.put("policies", api.vhost, policy.name, body=wanted)
    if found is None:
        return Item("policy", policy.name, ItemOutcome.CREATED, _definition_text(wanted))
    detail = f"{_definition_text(found)} is now {_definition_text(wanted)}"
    return Item("policy", policy.name, ItemOutcome.CHANGED, detail)


def _definition_text(policy: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in policy.get("definition", {}).items())


async def apply_guests(
    book: AddressBook, site: str, api: ManagementApi | None, why_not: str = ""
) -> list[Item]:
    """Set the users that other sites' link ends (with a `link_password`) need at the site's own
    broker, or report the commands to run there.

    The broker's administrator may make these users, or `apply`, given the management API, a user
    with the tag `administrator` and the passwords. `why_not`: reason why there is no API.
    """
    vhost = book.administrator(site).vhost
    items: list[Item] = []
    for end, user in guests(book.mesh, site).items():
        commands = guest_by_hand(user, vhost)
        if api is None:
            items.append(unchecked("user", user.name, why_not, commands))
            continue
        try:
            reference = book.mesh.sites[end].link_password or ""
            password = resolve_password(reference, book.environ)
        except PasswordMissing as missing:
            items.append(await _rights_alone(api, user, missing, commands))
        else:
            known = replace(user, password=password)
            items += await apply_users(api, [known], by_hand=commands)
    return items


def guest_by_hand(user: UserDeclaration, vhost: str) -> str:
    """Return the commands with which the broker's administrator makes the user. The password (of
    the site's `link_password`) comes from a file, since others see a command's words.
    """
    return (
        f"rabbitmqctl add_user {user.name} < PASSWORD_FILE && rabbitmqctl set_permissions "
        f"-p {shlex.quote(vhost)} {user.name} '{user.configure}' '{user.write}' '{user.read}'"
    )


async def _rights_alone(
    api: ManagementApi, user: UserDeclaration, missing: PasswordMissing, commands: str
) -> Item:
    """Set the rights of a user whose password is not here; the user must exist already."""
    try:
        if await api.get("users", user.name) is None:
            return unchecked("user", user.name, str(missing), commands)
        return await apply_rights(api, user)
    except ManagementError as error:
        return unchecked("user", user.name, error, commands)
