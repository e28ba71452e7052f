"""Users of other sites' ends of links at a broker of one's own: of sites with a `link_password`.

The broker's administrator may make them, or `apply`, if it has the management API, a user with the
tag `administrator` and the passwords.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from federation.brokers.addresses import AddressBook
from federation.brokers.apply_report import Item
from federation.brokers.apply_rights import apply_rights, apply_users, unchecked
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.passwords import PasswordMissing, resolve_password
from federation.brokers.users import UserDeclaration, guests


async def apply_guests(
    book: AddressBook, site: str, api: ManagementApi | None, why_not: str = ""
) -> list[Item]:
    """Make those that the broker of `site` needs, or say what to run there. `why_not`: why there is
    no API.
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
    """The commands with which the broker's administrator makes the user. The password is what the
    site's `link_password` names; it comes from a file, since others see a command's words.
    """
    return (
        f"rabbitmqctl add_user {user.name} < PASSWORD_FILE && rabbitmqctl set_permissions "
        f"-p {shlex.quote(vhost)} {user.name} '{user.configure}' '{user.write}' '{user.read}'"
    )


async def _rights_alone(
    api: ManagementApi, user: UserDeclaration, missing: PasswordMissing, commands: str
) -> Item:
    """Of a user whose password is not here: it has to be there already."""
    try:
        if await api.get("users", user.name) is None:
            return unchecked("user", user.name, str(missing), commands)
        return await apply_rights(api, user)
    except ManagementError as error:
        return unchecked("user", user.name, error, commands)
