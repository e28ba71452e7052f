"""What `apply` would change: by the record of the last one, or by asking the brokers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from federation.brokers.addresses import AddressBook, AddressError, read_private_brokers
from federation.brokers.applied import applied_revision
from federation.brokers.apply import NoManagement, preview_site
from federation.brokers.credentials import SECRETS_FILE, load_or_make, make_credentials
from federation.brokers.management import ManagementError
from federation.brokers.passwords import PasswordMissing
from federation.mesh import Mesh
from federation.mesh_file import Reading
from isthmus.known.cautions import cautions, refusals
from isthmus.known.known_meshes import KnownMeshes
from isthmus.known.since_applied import changes_since_applied
from isthmus.site_apply import BROKERS_AT_ONCE


def changes_of(reading: Reading, mesh: Mesh, state: Path) -> dict[str, Any]:
    """By the record; touches no broker. `known` is false if nothing was applied from this folder.

    `changes` are by revision that some site is at: the differences from there in the words of the
    mesh file, None if that revision's mesh was not kept. `never` are sites that nothing was applied
    at from here. `refused` is what apply and the nodes would not take up, `warnings` what else
    somebody should know before.
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
    """By site: what apply would do there, or why nobody knows. Leaves no trace in the folder.

    Raises AddressError and CredentialsError where what the folder has cannot be read.
    """
    # Passwords are made by `up` or `apply`, which store them; what is made here fits nowhere.
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
