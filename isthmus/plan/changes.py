"""Changes that `apply` would make, by the record of the last apply or by asking the brokers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from federation.brokers.addresses import AddressBook, AddressError, read_private_brokers
from federation.brokers.applied import applied_revision
from federation.brokers.apply import NoManagement, preview_site
from federation.brokers.credentials import (
    SECRETS_FILE,
    PasswordMissing,
    load_or_make,
    make_credentials,
)
from federation.brokers.management import ManagementError
from federation.mesh import Mesh
from federation.mesh_file import Reading
from federation.wording import counted, few
from isthmus.display import JsonObject, more
from isthmus.known.cautions import cautions, refusals
from isthmus.known.known_meshes import KnownMeshes
from isthmus.known.since_applied import changes_since_applied
from isthmus.site_apply import BROKERS_AT_ONCE


def changes_of(reading: Reading, mesh: Mesh, state: Path) -> dict[str, Any]:
    """Compare the mesh file with the record of applies; touch no broker.

    `known` is false if nothing was applied from the state folder. `changes` maps each revision that
    some site is at to the differences, in words of the mesh file, or None if the revision was not
    kept. `never` lists sites without an apply, `refused` the reasons why apply and nodes refuse the
    file, `warnings` further cautions.
    """
    never = [site for site in mesh.sites if applied_revision(state, mesh.name, site) is None]
    since = changes_since_applied(mesh, list(mesh.sites), state)
    return {
        "state": str(state),
        "known": len(never) < len(mesh.sites),
        "revision": mesh.revision,
        "changes": {
            revision: lines
            for revision, lines in since.changes.items()
            if revision != mesh.revision
        },
        "never": never,
        "refused": [str(reading.problem(one)) for one in refusals(mesh, KnownMeshes(state))],
        "warnings": cautions(Path(reading.name), mesh, since, state),
    }


async def ask_brokers(mesh: Mesh, sites: Sequence[str], state: Path) -> dict[str, dict[str, Any]]:
    """Return by site the changes that apply would make, or why they are unknown; leave no trace in
    the folder.

    Raises AddressError and CredentialsError if the folder cannot be read.
    """
    # Only `up` and `apply` store passwords; those made here fit no broker.
    is_there = (state / SECRETS_FILE).exists()
    credentials = load_or_make(state, mesh) if is_there else make_credentials(mesh)
    book = AddressBook(mesh, credentials, read_private_brokers(state), os.environ)
    turn = asyncio.Semaphore(BROKERS_AT_ONCE)

    async def one(site: str) -> dict[str, Any]:
        async with turn:
            try:
                return {"changes": await preview_site(book, site), "unknown": None}
            except (NoManagement, ManagementError, AddressError, PasswordMissing) as error:
                return {"changes": None, "unknown": str(error)}

    return dict(zip(sites, await asyncio.gather(*map(one, sites)), strict=True))


def change_lines(apply: JsonObject, most: int) -> Iterator[RenderableType]:
    """Render the changes by the record of the last apply."""
    for one in apply["refused"]:
        yield escape(f"apply and the nodes refuse: {one}")
    yield from _changes(apply, most)
    for one in apply["warnings"]:
        yield escape(f"warning: {one}")


def _changes(apply: JsonObject, most: int) -> Iterator[RenderableType]:
    where = f"from {apply['state']}"
    if not apply["known"]:
        yield escape(
            f"what apply would change: unknown, nothing was applied {where} (--state names another)"
        )
        return
    if not apply["changes"] and not apply["never"]:
        yield escape(
            f"apply would change nothing: revision {apply['revision']} was applied {where}"
        )
        return
    parts = [f"apply would change, from revision {apply['revision']} on:"]
    for revision, lines in apply["changes"].items():
        parts.append(f"  since {revision}, applied {where}:")
        if lines is None:
            parts.append("    unknown: what that revision was is not kept")
            continue
        parts += (f"    {line}" for line in lines[:most])
        if len(lines) > most:
            parts.append(f"    and {len(lines) - most:,} more: {more(most)}")
    if apply["never"]:
        parts.append(f"  nothing was applied {where} at {few(apply['never'])}")
    yield escape("\n".join(parts))


def broker_lines(brokers: dict[str, JsonObject], most: int) -> RenderableType:
    """Render the changes by the brokers' answers; sites with equal changes share a block."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for site, one in brokers.items():
        if one["changes"] is None:
            changes: tuple[str, ...] = (f"unknown: {one['unknown']}",)
        else:
            changes = tuple(one["changes"]) or ("nothing",)
        alike.setdefault(changes, []).append(site)
    lines = ["by what the brokers say, apply would do:"]
    for changes, sites in list(alike.items())[:most]:
        lines.append(f"  at {few(sites)}:")
        lines += (f"    {line}" for line in changes[:most])
        if len(changes) > most:
            lines.append(f"    and {len(changes) - most:,} more: {more(most)}")
    left = [site for sites in list(alike.values())[most:] for site in sites]
    if left:
        lines.append(f"  and at {counted(len(left), 'site')} more: {more(most)}")
    return escape("\n".join(lines))
