"""`isthmus simulate`: run a drawn mesh, or an outage of a mesh of one's own, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.commands.simulate_worlds import RunOptions, WorldOptions, simulate_worlds
from isthmus.options import EXIT_USAGE, AsJson, OutageOptions, exit_with, grouped

OF_FILES = frozenset(("fail", "outage", "rate", "size", "compression", "line_rate"))
"""Parameters for a mesh file; all others but `--json` are for drawn meshes."""
OPTIONS = {"outage": "for"}
"""Options whose names differ from their parameters."""


@grouped
def simulate(
    context: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A mesh file: what an outage of it costs."),
    ] = None,
    outage: OutageOptions,
    worlds: WorldOptions,
    run: RunOptions,
    as_json: AsJson = False,
) -> None:
    """Run a whole mesh in this process, in virtual time, and check its promises.

    With FILE: compute the cost of an outage of links or sites of the mesh. Which sites lag behind
    whom, how many messages and bytes, how long they take to catch up, which links carry more
    meanwhile, what logs have to keep, and whether the outage window of the file is enough.

    Without FILE: draw a mesh and the faults that strike it.

    The nodes are the real ones; brokers, disks and lines are in memory. While messages are
    published, lines are cut, nodes killed, confirms lost and more; then all has to arrive. Chance
    comes out of the seed alone: the same seed and options give the same run, on any machine. No
    broker is touched, and no file but in a temporary folder.

    Exit status 0; 1 if a promise did not hold, with the command that repeats the run, or if the
    file's outage window or a log is not enough; 2 if the call is wrong.

    Examples:

    isthmus simulate mesh.yaml --fail paris-tokyo --for 2h --rate 500

    isthmus simulate --seeds 1..100

    isthmus simulate --seeds 1..1000 --topology any --jobs 2 --shrink 60

    isthmus simulate --seeds 1..100 --slots 3 --nodes 2

    isthmus simulate --seed 7 --topology tree --sites 5 --faults kill,cut --trace
    """
    if _is_about_a_file(context, file):
        from isthmus.commands.simulate_outage import simulate_outage

        assert file is not None
        simulate_outage(file, outage, as_json=as_json)
    else:
        simulate_worlds(worlds, run, as_json=as_json)


def _is_about_a_file(context: typer.Context, file: Path | None) -> bool:
    """True if a mesh file is given; end the command if its options are mixed with those for drawn
    meshes.
    """
    given = [
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    ]
    of_others = [name for name in given if (name in OF_FILES) is (file is None)]
    of_others = [name for name in of_others if name not in ("file", "as_json")]
    if of_others:
        option = OPTIONS.get(of_others[0], of_others[0].replace("_", "-"))
        if file is None:
            exit_with(
                f"--{option} is about an outage of a mesh of your own: say its FILE first",
                EXIT_USAGE,
            )
        exit_with(f"--{option} is for meshes that are drawn: leave it or FILE out", EXIT_USAGE)
    return file is not None
