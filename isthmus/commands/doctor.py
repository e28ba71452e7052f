"""`isthmus doctor FILE`: faults of the mesh, and their remedies."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from federation.wording import counted
from isthmus.display import status_line
from isthmus.known.address_book import address_book_or_exit
from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    AsJson,
    MeshFile,
    OnlySites,
    StateFolder,
    chosen_or_exit,
)

_COLOURS = {"ok": "green", "unknown": "yellow", "warning": "yellow", "fault": "red"}


def doctor(
    file: MeshFile,
    site: OnlySites = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
    everything: Annotated[bool, typer.Option("--all", help="Show what is well too.")] = False,
) -> None:
    """Examine brokers, links, nodes and this machine; report faults and their remedies.

    Looks only: nothing is declared or changed. Exit status 0 if nothing is at fault, 1 if something
    is, 2 if the file is wrong.

    Example: isthmus doctor mesh.yaml --site paris
    """
    from isthmus.doctor.examination import examine
    from isthmus.doctor.finding import Grade

    mesh = mesh_or_known(file, state, site or None)
    chosen = chosen_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)
    with status_line("looking") as say:
        findings = asyncio.run(examine(book, chosen, state, say=say))
    counts = Counter(finding.grade for finding in findings)
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(one) for one in findings]}, indent=1))
    else:
        console = Console(highlight=False)
        for one in findings:
            if everything or one.grade is not Grade.OK:
                grade = Text(f"{one.grade.value:<8}", style=_COLOURS[one.grade])
                where = f"{one.site}: " if one.site else ""
                text = f"{where}{one.subject}: {one.said}"
                console.print(grade, text, soft_wrap=True, markup=False)
                if one.mend:
                    console.print(f"{'':<8} -> {one.mend}", soft_wrap=True, markup=False)
        well, unknown = (f"{counts[grade]} {grade.value}" for grade in (Grade.OK, Grade.UNKNOWN))
        worse = (counted(counts[grade], grade.value) for grade in (Grade.WARNING, Grade.FAULT))
        console.print(", ".join((well, unknown, *worse)))
    if counts[Grade.FAULT]:
        raise typer.Exit(EXIT_FAULT)
