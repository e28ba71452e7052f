"""Worlds of `isthmus simulate` without a file: meshes and faults drawn from seeds."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.options import EXIT_FAULT, EXIT_USAGE, exit_with

if TYPE_CHECKING:
    from relay.packing.memory_egress import Returns
    from simulation.scenario import Scenario, ScenarioOutcome

MOST_SHOWN = 100
"""Number of worlds up to which each is printed; of more, only those that fail."""
PROGRESS_S = 10.0
_SEEDS = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """Drawn worlds, as typed on the command line."""

    seed: Annotated[int, typer.Option(min=0, help="Which world.")] = 1
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Many worlds, one after the other.")
    ] = None
    topology: Annotated[
        str,
        typer.Option(
            help="ring, one-way-ring, complete, tree, hub, line, random or multicast; any: the "
            "seed draws it, and all of the following that is not given."
        ),
    ] = "ring"
    sites: Annotated[int | None, typer.Option(min=2, help="How many: 3 unless told.")] = None
    exchanges: Annotated[
        int | None,
        typer.Option(min=1, help="How many: 2 unless told, and more with --slots."),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=9, help="Nodes of each site, which take turns: 1 unless told."),
    ] = None
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=9,
            help="Most slots of a site; the seed draws how many each has: 1 unless told.",
        ),
    ] = None
    best_effort: Annotated[
        int | None,
        typer.Option(min=0, help="How many exchanges have order: best_effort: none unless told."),
    ] = None
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Partitions of each exchange: 1 unless told."),
    ] = None
    messages: Annotated[
        int | None, typer.Option(min=0, help="Published at each site: 50 unless told.")
    ] = None
    big: Annotated[
        int | None, typer.Option(min=1, help="One message in so many (150) has up to 1.8 MB.")
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="Of virtual time (60), in which they are published."),
    ] = None
    faults: Annotated[
        str | None,
        typer.Option(
            help="What may go wrong: all (unless told; but change, failover), none, or kinds "
            "with commas."
        ),
    ] = None
    every: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds between two faults, on average: 5.")
    ] = None
    first: Annotated[
        int | None, typer.Option(min=1, help="Of each site's messages, only so many.")
    ] = None
    max_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="What each link may send, as 512kbit/s: the mesh has lanes then. Without it "
            "neither.",
        ),
    ] = None
    returns: Annotated[
        str | None,
        typer.Option(
            metavar="fifo|shuffled",
            help="How egress hands out again what was not acknowledged: in order (unless told), or "
            "late and in any order, as clusters may.",
        ),
    ] = None
    without: Annotated[
        str, typer.Option(metavar="N,A..B", help="Leave out these faults; the others strike.")
    ] = ""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Way of running worlds."""

    jobs: Annotated[int, typer.Option(min=1, help="Worlds at a time, in processes.")] = 1
    shrink: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="SECONDS", help="Make a world that fails smaller, for so long."
        ),
    ] = 0.0
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happened.")] = False


def simulate_worlds(options: WorldOptions, run: RunOptions, *, as_json: bool) -> None:
    """Run the worlds of all seeds and print results; exit with 1 if a promise did not hold."""
    scenarios = _scenarios(options)
    if run.trace and run.jobs > 1:
        exit_with(
            "--trace: what happens in other processes is not told: leave --jobs out", EXIT_USAGE
        )
    outcomes = _run(scenarios, run, as_json)
    if as_json:
        typer.echo(json.dumps({"runs": [_report(one) for one in outcomes]}, indent=1))
    if not all(outcome.is_good for outcome in outcomes):
        raise typer.Exit(EXIT_FAULT)


def _scenarios(options: WorldOptions) -> list[Scenario]:
    """Return the worlds of all seeds; end the command if an option is invalid. Of an option that is
    None the default holds, or the seed draws its value.
    """
    from simulation.faults import Trouble, all_kinds
    from simulation.load import Load
    from simulation.scenario import Scenario
    from simulation.search import random_scenario

    slots, nodes = options.slots or 1, options.nodes or 1
    topology, best_effort = options.topology, options.best_effort or 0
    everything = all_kinds(nodes, slots, topology, best_effort)
    kinds = None
    if options.faults is not None:
        kinds = _kinds(options.faults, nodes, slots, topology, everything)
    without = _numbers(options.without)
    max_rate = None if options.max_rate is None else _rate(options.max_rate)
    returns = None if options.returns is None else _returns(options.returns)
    first, is_drawn = options.seed, topology == "any"
    seeds = range(first, first + 1) if options.seeds is None else _range(options.seeds)

    def scenario(seed: int) -> Scenario:
        base = (
            random_scenario(seed, slots, options.nodes)
            if is_drawn
            else Scenario(
                seed,
                topology,
                load=Load(50),
                trouble=Trouble(everything),
                exchanges=2 * slots,
                nodes=nodes,
                slots=slots,
            )
        )
        load, trouble = base.load, base.trouble
        return Scenario(
            seed,
            base.topology,
            options.sites or base.sites,
            Load(
                load.messages if options.messages is None else options.messages,
                load.for_s if options.seconds is None else options.seconds,
                options.big or load.big_one_in,
                options.first,
            ),
            Trouble(
                trouble.kinds if kinds is None else kinds,
                options.every or trouble.every_s,
                without,
            ),
            options.exchanges or base.exchanges,
            base.max_rate if max_rate is None else max_rate,
            returns or base.returns,
            base.nodes,
            base.slots,
            base.best_effort if options.best_effort is None else best_effort,
            options.partitions or base.partitions,
        )

    return [scenario(seed) for seed in seeds]


def _run(scenarios: list[Scenario], run: RunOptions, as_json: bool) -> list[ScenarioOutcome]:
    """Run the scenarios and print results as they come; return failed ones in their smallest
    form.
    """
    from simulation.search import run_many
    from simulation.topologies import NoSuchMesh

    began = shown_at = time.monotonic()
    outcomes: list[ScenarioOutcome] = []
    bad = 0
    try:
        for outcome in run_many(scenarios, run.jobs):
            if not outcome.is_good:
                bad += 1
                outcome = _shrunk(outcome, run.shrink)
            outcomes.append(outcome)
            if run.trace:
                for line in outcome.trace.lines():
                    typer.echo(line, err=as_json)
            if not as_json and (len(scenarios) <= MOST_SHOWN or not outcome.is_good):
                typer.echo(_line(outcome))
            if len(scenarios) > MOST_SHOWN and time.monotonic() > shown_at + PROGRESS_S:
                shown_at = time.monotonic()
                typer.echo(
                    _progress(len(outcomes), len(scenarios), bad, shown_at - began), err=True
                )
    except NoSuchMesh as error:
        exit_with(str(error), EXIT_USAGE)
    if not as_json and len(outcomes) > 1:
        rate = len(outcomes) / (time.monotonic() - began)
        typer.echo(
            f"{len(outcomes)} worlds, {bad} in which a promise did not hold;"
            f" {rate:.2f} worlds a second"
        )
    return outcomes


def _progress(done: int, of: int, bad: int, seconds: float) -> str:
    return f"{done} of {of} worlds, {bad} bad, {done / seconds:.2f} a second"


def _shrunk(outcome: ScenarioOutcome, seconds: float) -> ScenarioOutcome:
    """Shrink a failed world to the smallest that fails in the same way, for at most `seconds`."""
    from simulation.search import run_silently, shrink

    if not seconds:
        return outcome
    ends = time.monotonic() + seconds
    return shrink(outcome, run_silently, lambda: time.monotonic() < ends)


def _range(text: str) -> range:
    found = _SEEDS.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        exit_with(f"--seeds {text}: say the first and the last, as in 1..100", EXIT_USAGE)
    return range(int(found[1]), int(found[2]) + 1)


def _numbers(text: str) -> frozenset[int]:
    """Parse `--without`: numbers, and ranges such as 4..19."""
    found: set[int] = set()
    for one in filter(None, text.split(",")):
        first, _, last = one.partition("..")
        try:
            found.update(range(int(first), int(last or first) + 1))
        except ValueError:
            exit_with(f"--without {text}: numbers and ranges, as in 3,5..9", EXIT_USAGE)
    return frozenset(found)


def _ranges(numbers: frozenset[int]) -> str:
    """Format numbers for `_numbers`."""
    parts = []
    for first in sorted(numbers):
        if first - 1 in numbers:
            continue
        last = first
        while last + 1 in numbers:
            last += 1
        parts.append(str(first) if last == first else f"{first}..{last}")
    return ",".join(parts)


def _kinds(
    text: str, nodes: int, slots: int, topology: str, everything: tuple[str, ...]
) -> tuple[str, ...]:
    from simulation.faults import FAULTS, LOSSES, OF_GROUPS, OF_NODES, OF_SHARED_SLOTS
    from simulation.topologies import GROUPED

    if text in ("all", "none"):
        return everything if text == "all" else ()
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        exit_with(
            f"--faults: there is no {unknown[0]!r}, only all, none, {', '.join(FAULTS)}", EXIT_USAGE
        )
    if "change" in kinds and (losses := LOSSES.intersection(kinds)):
        exit_with(
            f"--faults: change does not go with {min(losses)}: ask for one of them", EXIT_USAGE
        )
    if nodes == 1 and (in_vain := [kind for kind in kinds if kind in OF_NODES]):
        exit_with(
            f"--faults: {in_vain[0]} strikes sites of several nodes: add --nodes 2", EXIT_USAGE
        )
    of_groups = [kind for kind in kinds if kind in OF_GROUPS]
    if of_groups and topology not in (GROUPED, "any"):
        exit_with(
            f"--faults: {of_groups[0]} strikes a multicast group: add --topology {GROUPED}",
            EXIT_USAGE,
        )
    shared = [kind for kind in kinds if kind in OF_SHARED_SLOTS]
    if shared and 1 in (nodes, slots):
        exit_with(
            f"--faults: {shared[0]} strikes sites whose nodes share slots: add --nodes 2 --slots 3",
            EXIT_USAGE,
        )
    return kinds


def _rate(text: str) -> str:
    """Check a rate of a mesh file; end the command if invalid."""
    from federation.mesh_file.keys.lane_values import parse_line_rate
    from federation.mesh_file.quantities import BadSize

    try:
        parse_line_rate(text)
    except BadSize as error:
        exit_with(f"--max-rate: {error}", EXIT_USAGE)
    return text


def _returns(text: str) -> Returns:
    """Parse `--returns`; end the command if unknown."""
    from relay.packing.memory_egress import Returns

    try:
        return Returns(text)
    except ValueError:
        exit_with(f"--returns: {text!r} is none of {', '.join(Returns)}", EXIT_USAGE)


def _faults_option(scenario: Scenario) -> str:
    """Format a scenario's kinds of faults for `_kinds`."""
    from simulation.faults import all_kinds

    kinds = scenario.trouble.kinds
    is_all = kinds == all_kinds(
        scenario.nodes, scenario.slots, scenario.topology, scenario.best_effort
    )
    return "all" if is_all else ",".join(kinds) or "none"


def command_of(scenario: Scenario) -> str:
    """Return the command that repeats a scenario."""
    load, trouble = scenario.load, scenario.trouble
    less = "" if load.first is None else f" --first {load.first}"
    if trouble.without:
        less += f" --without {_ranges(trouble.without)}"
    if scenario.max_rate:
        less += f" --max-rate {scenario.max_rate}"
    if scenario.nodes > 1:
        less += f" --nodes {scenario.nodes}"
    if scenario.slots > 1:
        less += f" --slots {scenario.slots}"
    if scenario.best_effort:
        less += f" --best-effort {scenario.best_effort}"
    if scenario.partitions > 1:
        less += f" --partitions {scenario.partitions}"
    if scenario.returns != "fifo":
        less += f" --returns {scenario.returns}"
    return (
        f"isthmus simulate --seed {scenario.seed} --topology {scenario.topology}"
        f" --sites {scenario.sites} --exchanges {scenario.exchanges}"
        f" --messages {load.messages} --big {load.big_one_in}"
        f" --seconds {load.for_s:g} --faults {_faults_option(scenario)}"
        f" --every {trouble.every_s:g}{less}"
    )


def _line(outcome: ScenarioOutcome) -> str:
    scenario = outcome.scenario
    text = (
        f"seed {scenario.seed}: {scenario.topology} of {scenario.sites} sites,"
        f" {outcome.published} messages published, {outcome.arrived} arrived,"
        f" {outcome.flagged} of them flagged;"
        f" {outcome.virtual_s:.0f} s in {outcome.real_s:.1f} s; {outcome.trace.digest}"
    )
    if outcome.is_good:
        return text
    return f"{text}\n  {outcome.broken}\n  again: {command_of(scenario)} --trace"


def _report(outcome: ScenarioOutcome) -> dict[str, Any]:
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
