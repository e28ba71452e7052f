"""What `apply` would change, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape

from federation.counted import counted
from isthmus.tables import Told, few, more


def change_lines(apply: Told, most: int) -> Iterator[RenderableType]:
    """By the record of the last apply."""
    for one in apply["refused"]:
        yield escape(f"apply and the nodes refuse: {one}")
    yield from _changes(apply, most)
    for one in apply["warnings"]:
        yield escape(f"warning: {one}")


def _changes(apply: Told, most: int) -> Iterator[RenderableType]:
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
    said = [f"apply would change, from revision {apply['revision']} on:"]
    for revision, lines in apply["changes"].items():
        said.append(f"  since {revision}, applied {where}:")
        if lines is None:
            said.append("    unknown: what that revision was is not kept")
            continue
        said += (f"    {line}" for line in lines[:most])
        if len(lines) > most:
            said.append(f"    and {len(lines) - most:,} more: {more(most)}")
    if apply["never"]:
        said.append(f"  nothing was applied {where} at {few(apply['never'])}")
    yield escape("\n".join(said))


def broker_lines(brokers: dict[str, Told], most: int) -> RenderableType:
    """By what the brokers said; sites where the same would be done together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for site, one in brokers.items():
        if one["changes"] is None:
            said: tuple[str, ...] = (f"unknown: {one['unknown']}",)
        else:
            said = tuple(one["changes"]) or ("nothing",)
        alike.setdefault(said, []).append(site)
    lines = ["by what the brokers say, apply would do:"]
    for said, sites in list(alike.items())[:most]:
        lines.append(f"  at {few(sites)}:")
        lines += (f"    {line}" for line in said[:most])
        if len(said) > most:
            lines.append(f"    and {len(said) - most:,} more: {more(most)}")
    left = [site for sites in list(alike.values())[most:] for site in sites]
    if left:
        lines.append(f"  and at {counted(len(left), 'site')} more: {more(most)}")
    return escape("\n".join(lines))
