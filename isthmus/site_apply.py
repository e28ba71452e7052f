"""Application of a mesh to the brokers of several sites, side by side."""

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
"""Enough to hide the delay of far sites, few enough to leave a small machine usable."""

_EXPECTED = (AddressError, AppliedRecordBroken, PasswordMissing)


async def apply_sites(book: AddressBook, sites: Sequence[str], state: Path) -> list[SiteReport]:
    """Apply several sites, brokers side by side; what goes wrong at one does not stop the others.

    Sites that share a broker go one after the other: they declare the same neighbours' users, and
    RabbitMQ, told twice at a time to make a user, leaves it without the rights of one of the two.
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
    """The sites, those that share a broker together."""
    groups: list[tuple[set[object], list[str]]] = []
    for site in sites:
        keys: set[object]
        try:
            keys = set(book.listeners(site))
        except AddressError:
            keys = {site}  # Its own apply says what is wrong.
        alike = [group for group in groups if group[0] & keys]
        if not alike:
            groups.append((keys, [site]))
            continue
        places, named = alike[0]
        places |= keys
        for other in alike[1:]:  # which this site's list of nodes joins
            places |= other[0]
            named += other[1]
            groups.remove(other)
        named.append(site)
    return [named for _, named in groups]


def lines(report: SiteReport, *, everything: bool = False) -> list[str]:
    """A report for people: a heading, then what is worth saying."""
    there = sum(item.outcome is ItemOutcome.THERE for item in report.items)
    if not report.changes and not report.faults:
        heading = f"{report.site}: nothing to do, {there} already there"
    else:
        heading = f"{report.site}: {len(report.changes)} changed, {there} already there"
    if report.faults:
        heading += f", {len(report.faults)} AT FAULT"
    said = [heading]
    for item in report.items:
        if everything or item.outcome is not ItemOutcome.THERE:
            detail = f": {item.detail}" if item.detail else ""
            said.append(f"  {item.outcome.value:<13} {item.kind:<8} {item.name}{detail}")
            if item.mend:
                said.append(f"  {'':<13} {'':<8} -> {item.mend}")
    return said
