"""`isthmus simulate`: whole meshes in this process, in virtual time, each out of a seed."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from isthmus.options import EXIT_FAULT, EXIT_USAGE, AsJson

if TYPE_CHECKING:
    from simulation.scenario import Outcome, Scenario

_SEEDS = re.compile(r"(\d+)\.\.(\d+)")


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="Which world.")] = 1,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Many worlds, one after the other.")
    ] = None,
    topology: Annotated[
        str, typer.Option(help="ring, one-way-ring, complete, tree, hub or line.")
    ] = "ring",
    sites: Annotated[int, typer.Option(min=2, help="How many.")] = 3,
    exchanges: Annotated[int, typer.Option(min=1, help="How many.")] = 2,
    messages: Annotated[int, typer.Option(min=0, help="Published at each site.")] = 50,
    big: Annotated[int, typer.Option(min=1, help="One message in so many has up to 1.8 MB.")] = 150,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Of virtual time, in which they are published.")
    ] = 60.0,
    faults: Annotated[
        str, typer.Option(help="What may go wrong: all, none, or kinds with commas between.")
    ] = "all",
    every: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two faults, on average.")
    ] = 5.0,
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happened.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a whole mesh in this process, in virtual time, and check what is promised of it.

    The nodes are the real ones; brokers, disks and lines are in memory. While messages are
    published, lines are cut, nodes killed, confirms lost and more; then all has to arrive. All that
    chance decides comes out of the seed: the same seed and options give the same run, on any
    machine. No broker is touched, and no file but in a temporary folder.

    Exit status 0; 1 if something that is promised did not hold, with the command that runs it
    again; 2 if the call is wrong.

    Examples:

    isthmus simulate --seeds 1..100

    isthmus simulate --seed 7 --topology tree --sites 5 --faults kill,cut --trace
    """
    from simulation.faults import Trouble
    from simulation.load import Load
    from simulation.scenario import Scenario

    trouble = Trouble(_kinds(faults), every)
    load = Load(messages, seconds, big)
    chosen = range(seed, seed + 1) if seeds is None else _range(seeds)
    scenarios = (Scenario(one, topology, sites, load, trouble, exchanges) for one in chosen)
    outcomes = []
    for scenario in scenarios:
        outcome = _run(scenario)
        outcomes.append(outcome)
        if trace:
            for line in outcome.trace.lines():
                typer.echo(line, err=as_json)
        if not as_json:
            typer.echo(_line(outcome))
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    if as_json:
        typer.echo(json.dumps({"runs": [_told(one) for one in outcomes]}, indent=1))
    elif len(outcomes) > 1:
        typer.echo(f"{len(outcomes)} worlds, {len(bad)} in which a promise did not hold")
    if bad:
        raise typer.Exit(EXIT_FAULT)


def _range(text: str) -> range:
    found = _SEEDS.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        _refuse(f"--seeds {text}: say the first and the last, as in 1..100")
    return range(int(found[1]), int(found[2]) + 1)


def _kinds(text: str) -> tuple[str, ...]:
    from simulation.faults import FAULTS

    if text in ("all", "none"):
        return tuple(FAULTS) if text == "all" else ()
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        _refuse(f"--faults: there is no {unknown[0]!r}, only all, none, {', '.join(FAULTS)}")
    return kinds


def _asked(kinds: tuple[str, ...]) -> str:
    """What `_kinds` reads as these."""
    from simulation.faults import FAULTS

    return "all" if kinds == tuple(FAULTS) else ",".join(kinds) or "none"


def _run(scenario: Scenario) -> Outcome:
    from simulation.scenario import run
    from simulation.topologies import NoSuchMesh

    # What nodes say of their troubles is part of the plan here.
    logging.disable(logging.CRITICAL)
    try:
        return run(scenario)
    except NoSuchMesh as error:
        _refuse(str(error))
    finally:
        logging.disable(logging.NOTSET)


def command_of(scenario: Scenario) -> str:
    """What runs this one again."""
    return (
        f"isthmus simulate --seed {scenario.seed} --topology {scenario.topology}"
        f" --sites {scenario.sites} --exchanges {scenario.exchanges}"
        f" --messages {scenario.load.messages} --big {scenario.load.big_one_in}"
        f" --seconds {scenario.load.for_s:g} --faults {_asked(scenario.trouble.kinds)}"
        f" --every {scenario.trouble.every_s:g}"
    )


def _line(outcome: Outcome) -> str:
    scenario = outcome.scenario
    said = (
        f"seed {scenario.seed}: {scenario.topology} of {scenario.sites} sites,"
        f" {outcome.published} messages published, {outcome.arrived} arrived,"
        f" {outcome.flagged} of them flagged;"
        f" {outcome.virtual_s:.0f} s in {outcome.real_s:.1f} s; {outcome.trace.digest}"
    )
    if outcome.is_good:
        return said
    return f"{said}\n  {outcome.broken}\n  again: {command_of(scenario)} --trace"


def _told(outcome: Outcome) -> dict[str, Any]:
    scenario = outcome.scenario
    return {
        "seed": scenario.seed,
        "topology": scenario.topology,
        "sites": scenario.sites,
        "good": outcome.is_good,
        "broken": outcome.broken,
        "again": command_of(scenario),
        "published": outcome.published,
        "arrived": outcome.arrived,
        "flagged": outcome.flagged,
        "events": dict(sorted(outcome.trace.counts.items())),
        "digest": outcome.trace.digest,
        "virtual_s": round(outcome.virtual_s, 3),
        "real_s": round(outcome.real_s, 3),
    }


def _refuse(why: str) -> NoReturn:
    typer.echo(why, err=True)
    raise typer.Exit(EXIT_USAGE)
