"""Apply of a mesh to the brokers of several sites, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.applied import AppliedRecordBroken, write_applied_mesh
from federation.brokers.apply import apply_site
from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from federation.mesh_file import PasswordMissing

BROKERS_AT_ONCE = 8
"""Brokers at a time: enough to hide the delay of far sites, few enough for a small machine."""

_EXPECTED = (AddressError, AppliedRecordBroken, PasswordMissing)


async def apply_sites(book: AddressBook, sites: Sequence[str], state: Path) -> list[SiteReport]:
    """Apply the mesh to sites, brokers side by side; a failure at one site does not stop others.

    Sites of one broker go one after the other: they declare the same neighbours' users, and
    RabbitMQ, asked twice at a time to make a user, loses the rights of one request.
    """
    write_applied_mesh(state, book.mesh)
    turn = asyncio.Semaphore(BROKERS_AT_ONCE)
    reports: dict[str, SiteReport] = {}

    async def one(site: str) -> SiteReport:
        try:
            return await apply_site(book, site, state)
        except _EXPECTED as error:
            return SiteReport(site, (Item("broker", site, ItemOutcome.FAILED, str(error)),))

    async def one_broker(sites: Sequence[str]) -> None:
        async with turn:
            for site in sites:
                reports[site] = await one(site)

    await asyncio.gather(*map(one_broker, by_broker(book, sites)))
    return [reports[site] for site in sites]


def by_broker(book: AddressBook, sites: Sequence[str]) -> list[list[str]]:
    groups: list[tuple[set[object], list[str]]] = []
    for site in sites:
        keys: set[object]
        try:
            keys = set(book.listeners(site))
        except AddressError:
            keys = {site}  # the site's own apply reports the error
        alike = [group for group in groups if group[0] & keys]
        if not alike:
            groups.append((keys, [site]))
            continue
        places, named = alike[0]
        places |= keys
        for other in alike[1:]:  # joined by this site's list of nodes
            places |= other[0]
            named += other[1]
            groups.remove(other)
        named.append(site)
    return [named for _, named in groups]


def lines(report: SiteReport, *, everything: bool = False) -> list[str]:
    """Render a report: a heading, then noteworthy items."""
    there = sum(item.outcome is ItemOutcome.THERE for item in report.items)
    if not report.changes and not report.faults:
        heading = f"{report.site}: nothing to do, {there} already there"
    else:
        heading = f"{report.site}: {len(report.changes)} changed, {there} already there"
    if report.faults:
        heading += f", {len(report.faults)} AT FAULT"
    shown = [heading]
    for item in report.items:
        if everything or item.outcome is not ItemOutcome.THERE:
            detail = f": {item.detail}" if item.detail else ""
            shown.append(f"  {item.outcome.value:<13} {item.kind:<8} {item.name}{detail}")
            if item.mend:
                shown.append(f"  {'':<13} {'':<8} -> {item.mend}")
    return shown
