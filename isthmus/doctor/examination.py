"""Whole examination: this machine, then every site, as far as each answers."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.management import ManagementApi, ManagementError
from federation.mesh_file import PasswordMissing
from federation.wording import counted
from isthmus.clocks import clocks_apart
from isthmus.doctor.broker import STATISTICS_LAG_S, examine_broker, examine_declared
from isthmus.doctor.certificates import examine_certificates
from isthmus.doctor.connections import examine_connections
from isthmus.doctor.finding import Finding, Findings
from isthmus.doctor.lock_holders import examine_lock_holders
from isthmus.doctor.multicast import examine_group
from isthmus.doctor.node import examine_links, examine_node
from isthmus.doctor.partition_hash import examine_hash, examine_spreading
from isthmus.doctor.site_servers import examine_servers
from isthmus.status import HELD, status_of

SITES_AT_ONCE = 8


def utc_now() -> datetime:
    return datetime.now(UTC)


def _ignore(_: str) -> None:
    return None


async def examine(
    book: AddressBook,
    sites: Sequence[str],
    state: Path,
    now: Callable[[], datetime] = utc_now,
    say: Callable[[str], None] = _ignore,
) -> list[Finding]:
    """Examine this machine, then the sites in order; `say` receives the progress."""
    machine = Findings("")
    examine_machine(state, len(sites), machine)
    content = (await status_of(book.mesh, state)).content
    believed_at = asyncio.get_running_loop().time() + STATISTICS_LAG_S
    turn = asyncio.Semaphore(SITES_AT_ONCE)
    done = 0

    def how_far(more: str = "") -> None:
        say(f"examined {done} of {counted(len(sites), 'site')}{more}")

    async def one(site: str) -> list[Finding]:
        nonlocal done
        found = Findings(site)
        examine_certificates(book.mesh.sites[site], now(), found)
        async with turn:
            await _broker_side(
                book, site, found, now, believed_at, lambda why: how_far(f"; {site}: {why}")
            )
            if book.mesh.sites[site].nodes is not None:
                owners = await examine_servers(book, site, content["sites"][site], found)
                await _locks(book, site, owners, found)
        done += 1
        how_far()
        examine_node(content["sites"][site], book.mesh, found)
        if content["sites"][site]["state"] in ("running", *HELD):
            links = [link for link in content["links"] if link["from"] == site]
            examine_links(links, content["sites"], found)
            for difference in clocks_apart(book.mesh, links):
                found.warn("clock", difference, "let both machines follow a time server")
        return found.all + examine_group(book, site, state, content["sites"]).all

    how_far()
    return machine.all + [
        finding for of_site in await asyncio.gather(*map(one, sites)) for finding in of_site
    ]


async def _broker_side(
    book: AddressBook,
    site: str,
    found: Findings,
    now: Callable[[], datetime],
    believed_at: float,
    say: Callable[[str], None],
) -> None:
    try:
        reached = await examine_connections(book, site, found)
        management = book.monitoring(site)
    except (AddressError, PasswordMissing) as error:
        found.fault("broker", str(error), "then run this again: nothing else could be asked")
        return
    if management is None:
        found.unknown(
            "declared",
            "the mesh file has no `management:` for this site, so much cannot be looked at",
            "add it, with a user that has the tag `monitoring`",
        )
    elif reached:
        async with ManagementApi(management) as api:
            await examine_broker(api, book.mesh, found, now, believed_at, say)
            await examine_declared(api, book, site, found)
            with contextlib.suppress(ManagementError):  # found before
                await examine_spreading(api, book, found)
    if reached:
        await examine_hash(book, site, found)


async def _locks(book: AddressBook, site: str, owners: Mapping[int, str], found: Findings) -> None:
    """Examine who holds the locks; an address or a broker at fault was found before."""
    with contextlib.suppress(AddressError, PasswordMissing, ManagementError):
        if (management := book.monitoring(site)) is not None:
            async with ManagementApi(management) as api:
                await examine_lock_holders(api, book.mesh, owners, found)


LEAST_FREE_BYTES = 1 << 30
LEAST_FILES = 4096


def examine_machine(state: Path, sites: int, found: Findings) -> None:
    """Examine disk and open files of this machine, on which nodes of up to `sites` sites run."""
    folder = state.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        found.warn(
            "disk",
            f"{folder} has {free / 2**20:.0f} MiB free: state and ledger are kept there",
            "free disk, or keep the state elsewhere with --state",
        )
    else:
        found.ok("disk", f"{folder} has {free / 2**30:.1f} GiB free")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < LEAST_FILES and sites > 1:
        found.warn(
            "open files",
            f"a process may open {most} files here; a node with many links or tables needs more",
            f"raise it: `ulimit -n {LEAST_FILES}`, or LimitNOFILE in the unit",
        )
