"""Arguments, options and exit statuses shared by commands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

from federation.mesh import Mesh
from federation.mesh_file import Reading, Severity, read_mesh
from isthmus.completion import site_names

EXIT_FAULT = 1
"""Exit status of a failure, whose reason is on standard error."""
EXIT_USAGE = 2
"""Exit status of a wrong mesh file or call; nothing was done."""
EXIT_STOPPED = 3
"""Exit status of a node that no restart mends: the supervisor leaves the node alone."""

OnlySites = Annotated[
    list[str] | None,
    typer.Option(
        "--site",
        metavar="SITE",
        help="Only this site; may be repeated.",
        autocompletion=site_names,
    ),
]
MeshFile = Annotated[Path, typer.Argument(metavar="FILE", help="The mesh file.")]
SiteName = Annotated[
    str, typer.Argument(metavar="SITE", help="A site of the mesh.", autocompletion=site_names)
]
StateFolder = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="Folder of the mesh's state.")
]
LedgerFolder = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URI",
        help="Where the sites' ledgers lie, as Spark reads it: a folder for each site. "
        "Default: `sites` in the state folder.",
    ),
]
RabbitMQFolder = Annotated[
    Path | None,
    typer.Option(
        "--rabbitmq",
        metavar="DIR",
        help="Another installation of RabbitMQ for private brokers: its folder, or a chroot.",
    ),
]
PreviousFormats = Annotated[
    bool,
    typer.Option(
        "--previous-formats",
        help="Know no formats but those of the version before: to rehearse an upgrade.",
    ),
]
MessageSize = Annotated[str, typer.Option("--size", help="Of a message's body, on average.")]
Compression = Annotated[
    float, typer.Option(help="How many times smaller batches get.", min=1.0, max=1000.0)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

DEFAULT_STATE = Path(".isthmus")


@dataclass(frozen=True, slots=True)
class OutageOptions:
    """Question about an outage, as typed on the command line."""

    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="LINK|SITE",
            help="What is away: paris-tokyo (both ways), 'paris->tokyo', paris. May be repeated.",
        ),
    ] = None
    outage: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it is away: 2h.")
    ] = None
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages a second to each exchange at each site that publishes to it: 500; "
            "paris=500; orders=30/m; orders@paris=1k/s. May be repeated.",
        ),
    ] = None
    size: MessageSize = "1KiB"
    compression: Compression = 1.0
    line_rate: Annotated[
        list[str] | None,
        typer.Option(
            "--line-rate",
            metavar="RATE",
            help="What lines carry each way: 12.5MB/s (unless told); paris-tokyo=1MB/s. May be "
            "repeated.",
        ),
    ] = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that takes groups of options as dataclasses.

    Typer sees a flat signature, with the fields of each dataclass in its parameter's place.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    flat: list[Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if (group := groups.get(parameter.name)) is not None:
            flat += _parameters(group)
        else:
            kind = Parameter.KEYWORD_ONLY
            flat.append(parameter.replace(annotation=hints[parameter.name], kind=kind))

    @functools.wraps(command)
    def flattened(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    flattened.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    flattened.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return flattened


def _parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def exit_with(why: str, status: int) -> NoReturn:
    """Print to standard error why the command cannot go on, and end the command."""
    typer.echo(why, err=True)
    raise typer.Exit(status) from None


def exit_without_cluster_parts(site: str, error: ImportError) -> NoReturn:
    """End a command that needs the clients of ZooKeeper and Cassandra, which are extras."""
    exit_with(
        f"{site} has a `cluster:`, and what a node needs for that is not installed ({error}):"
        " pip install 'isthmus[cluster]'",
        EXIT_FAULT,
    )


def ledger_or_own(ledger: str | None, state: Path) -> str:
    """Return the URI of the ledgers, by default in the state folder."""
    return ledger or str((state / "sites").absolute())


def reading_or_exit(file: Path, sites: Collection[str] | None = None) -> tuple[Reading, Mesh]:
    """Read a mesh file; print its problems to standard error and end the command if invalid.

    `sites` limits warnings to those about the sites; None shows all.
    """
    reading = read_mesh(file)
    print_problems(reading, sites)
    if reading.mesh is None:
        raise typer.Exit(EXIT_USAGE)
    return reading, reading.mesh


def mesh_or_exit(file: Path, sites: Collection[str] | None = None) -> Mesh:
    """Read a mesh file like `reading_or_exit`; return the mesh."""
    return reading_or_exit(file, sites)[1]


def print_problems(reading: Reading, sites: Collection[str] | None = None) -> None:
    """Print all errors, and the warnings about the sites or about none in particular."""
    for problem in reading.problems:
        is_error = problem.severity is Severity.ERROR
        if is_error or sites is None or not problem.site or problem.site in sites:
            typer.echo(str(problem), err=True)


def reached_from(mesh: Mesh | None, sites: Collection[str]) -> set[str]:
    """Return the sites and those whose brokers their nodes connect to because links meet there."""
    links = mesh.links if mesh is not None else ()
    meetings = {link.meeting for link in links if {link.sender, link.receiver} & set(sites)}
    return {*sites, *meetings}


def site_or_exit(file: Path, mesh: Mesh, *sites: str) -> None:
    """End the command unless the mesh has all these sites."""
    for site in sites:
        if site not in mesh.sites:
            known = ", ".join(mesh.sites)
            exit_with(f"{file}: there is no site {site!r}; the mesh has {known}", EXIT_USAGE)


def chosen_or_exit(file: Path, mesh: Mesh, only: list[str] | None) -> list[str]:
    """Return the named sites, each once, or by default all of the mesh."""
    chosen = list(dict.fromkeys(only)) if only else list(mesh.sites)
    site_or_exit(file, mesh, *chosen)
    return chosen
