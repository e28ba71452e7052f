"""`isthmus simulate`: whole meshes in this process, in virtual time, each out of a seed."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from isthmus.options import EXIT_FAULT, EXIT_USAGE, AsJson, Compression, MessageSize

if TYPE_CHECKING:
    from relay.packing.memory_egress import Returns
    from simulation.scenario import Scenario, ScenarioOutcome

MOST_TOLD = 100
"""Of more worlds, only those that fail are told one by one."""
PROGRESS_S = 10.0
OF_FILES = frozenset(("fail", "outage", "rate", "size", "compression", "line_rate"))
"""Parameters that are for a mesh file; all others but `--json` are for meshes that are drawn."""
OPTIONS = {"outage": "for"}
"""Parameters whose options have other names."""
_SEEDS = re.compile(r"(\d+)\.\.(\d+)")


def simulate(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A mesh file: what an outage of it costs."),
    ] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="LINK|SITE",
            help="What is away: paris-tokyo (both ways), 'paris->tokyo', paris. May be repeated.",
        ),
    ] = None,
    outage: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it is away: 2h.")
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages a second to each exchange at each site that publishes to it: 500; "
            "paris=500; orders=30/m; orders@paris=1k/s. May be repeated.",
        ),
    ] = None,
    size: MessageSize = "1KiB",
    compression: Compression = 1.0,
    line_rate: Annotated[
        list[str] | None,
        typer.Option(
            "--line-rate",
            metavar="RATE",
            help="What lines carry each way: 12.5MB/s (unless told); paris-tokyo=1MB/s. May be "
            "repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which world.")] = 1,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Many worlds, one after the other.")
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            help="ring, one-way-ring, complete, tree, hub, line or random; any: the seed draws "
            "it, and all of the following that is not given."
        ),
    ] = "ring",
    sites: Annotated[int | None, typer.Option(min=2, help="How many: 3 unless told.")] = None,
    exchanges: Annotated[int | None, typer.Option(min=1, help="How many: 2 unless told.")] = None,
    messages: Annotated[
        int | None, typer.Option(min=0, help="Published at each site: 50 unless told.")
    ] = None,
    big: Annotated[
        int | None, typer.Option(min=1, help="One message in so many (150) has up to 1.8 MB.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="Of virtual time (60), in which they are published."),
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="What may go wrong: all (unless told; but change), none, or kinds with commas."
        ),
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds between two faults, on average: 5.")
    ] = None,
    first: Annotated[
        int | None, typer.Option(min=1, help="Of each site's messages, only so many.")
    ] = None,
    max_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="What each link may send, as 512kbit/s: the mesh has lanes then. Without it "
            "neither.",
        ),
    ] = None,
    returns: Annotated[
        str | None,
        typer.Option(
            metavar="fifo|shuffled",
            help="How egress hands out again what was not acknowledged: in order (unless told), or "
            "late and in any order, as clusters may.",
        ),
    ] = None,
    without: Annotated[
        str, typer.Option(metavar="N,A..B", help="Leave out these faults; the others strike.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Worlds at a time, in processes.")] = 1,
    shrink: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="SECONDS", help="Make a world that fails smaller, for so long."
        ),
    ] = 0.0,
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happened.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a whole mesh in this process, in virtual time, and check what is promised of it.

    With FILE: tell what an outage of links or sites of that mesh would cost. Which sites lag behind
    whom, how many messages and bytes, how long they take to catch up, which links carry more
    meanwhile, what logs have to keep, and whether the outage window of the file is enough.

    Without FILE: draw a mesh and what goes wrong in it.

    The nodes are the real ones; brokers, disks and lines are in memory. While messages are
    published, lines are cut, nodes killed, confirms lost and more; then all has to arrive. All that
    chance decides comes out of the seed: the same seed and options give the same run, on any
    machine. No broker is touched, and no file but in a temporary folder.

    Exit status 0; 1 if something that is promised did not hold, with the command that runs it
    again, or if the file's outage window or a log is not enough; 2 if the call is wrong.

    Examples:

    isthmus simulate mesh.yaml --fail paris-tokyo --for 2h --rate 500

    isthmus simulate --seeds 1..100

    isthmus simulate --seeds 1..1000 --topology any --jobs 2 --shrink 60

    isthmus simulate --seed 7 --topology tree --sites 5 --faults kill,cut --trace
    """
    if _is_about_a_file(context, file):
        from isthmus.commands.simulate_outage import Said, simulate_outage

        assert file is not None
        said = Said(fail or (), outage, rate or (), size, line_rate or (), compression)
        simulate_outage(file, said, as_json=as_json)
        return
    asked = _Asked(
        topology,
        sites,
        exchanges,
        messages,
        big,
        seconds,
        None if faults is None else _kinds(faults),
        every,
        first,
        _numbers(without),
        None if max_rate is None else _rate(max_rate),
        None if returns is None else _returns(returns),
    )
    chosen = range(seed, seed + 1) if seeds is None else _range(seeds)
    if trace and jobs > 1:
        _refuse("--trace: what happens in other processes is not told: leave --jobs out")
    outcomes = _run([asked.scenario(one) for one in chosen], jobs, shrink, trace, as_json)
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    if as_json:
        typer.echo(json.dumps({"runs": [_told(one) for one in outcomes]}, indent=1))
    if bad:
        raise typer.Exit(EXIT_FAULT)


def _is_about_a_file(context: typer.Context, file: Path | None) -> bool:
    """Whether it is about an outage of the mesh of a file; ends the command where that is mixed up
    with the options for meshes that are drawn.
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
            _refuse(f"--{option} is about an outage of a mesh of your own: say its FILE first")
        _refuse(f"--{option} is for meshes that are drawn: leave it or FILE out")
    return file is not None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for. None: as ever, or as the seed draws it."""

    topology: str
    sites: int | None
    exchanges: int | None
    messages: int | None
    big: int | None
    seconds: float | None
    kinds: tuple[str, ...] | None
    every: float | None
    first: int | None
    without: frozenset[int]
    max_rate: str | None
    returns: Returns | None

    def scenario(self, seed: int) -> Scenario:
        """The scenario of this seed."""
        from simulation.faults import Trouble
        from simulation.load import Load
        from simulation.scenario import Scenario
        from simulation.search import random_scenario

        is_drawn = self.topology == "any"
        base = random_scenario(seed) if is_drawn else Scenario(seed, self.topology, load=Load(50))
        load, trouble = base.load, base.trouble
        return Scenario(
            seed,
            base.topology,
            self.sites or base.sites,
            Load(
                load.messages if self.messages is None else self.messages,
                load.for_s if self.seconds is None else self.seconds,
                self.big or load.big_one_in,
                self.first,
            ),
            Trouble(
                trouble.kinds if self.kinds is None else self.kinds,
                self.every or trouble.every_s,
                self.without,
            ),
            self.exchanges or base.exchanges,
            base.max_rate if self.max_rate is None else self.max_rate,
            self.returns or base.returns,
        )


def _run(
    scenarios: list[Scenario], jobs: int, shrink_s: float, trace: bool, as_json: bool
) -> list[ScenarioOutcome]:
    """What became of them, told as it comes; those that failed in their smallest form."""
    from simulation.search import run_many
    from simulation.topologies import NoSuchMesh

    began = said = time.monotonic()
    outcomes: list[ScenarioOutcome] = []
    bad = 0
    try:
        for outcome in run_many(scenarios, jobs):
            if not outcome.is_good:
                bad += 1
                outcome = _shrunk(outcome, shrink_s)
            outcomes.append(outcome)
            if trace:
                for line in outcome.trace.lines():
                    typer.echo(line, err=as_json)
            if not as_json and (len(scenarios) <= MOST_TOLD or not outcome.is_good):
                typer.echo(_line(outcome))
            if len(scenarios) > MOST_TOLD and time.monotonic() > said + PROGRESS_S:
                said = time.monotonic()
                typer.echo(_progress(len(outcomes), len(scenarios), bad, said - began), err=True)
    except NoSuchMesh as error:
        _refuse(str(error))
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
    """The smallest world of its kind that fails in the same way, as far as it can be found."""
    from simulation.search import run_silently, shrink

    if not seconds:
        return outcome
    ends = time.monotonic() + seconds
    return shrink(outcome, run_silently, lambda: time.monotonic() < ends)


def _range(text: str) -> range:
    found = _SEEDS.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        _refuse(f"--seeds {text}: say the first and the last, as in 1..100")
    return range(int(found[1]), int(found[2]) + 1)


def _numbers(text: str) -> frozenset[int]:
    """What `--without` says: numbers, and ranges as in 4..19."""
    found: set[int] = set()
    for one in filter(None, text.split(",")):
        first, _, last = one.partition("..")
        try:
            found.update(range(int(first), int(last or first) + 1))
        except ValueError:
            _refuse(f"--without {text}: numbers and ranges, as in 3,5..9")
    return frozenset(found)


def _ranges(numbers: frozenset[int]) -> str:
    """What `_numbers` reads as these."""
    told = []
    for first in sorted(numbers):
        if first - 1 in numbers:
            continue
        last = first
        while last + 1 in numbers:
            last += 1
        told.append(str(first) if last == first else f"{first}..{last}")
    return ",".join(told)


def _kinds(text: str) -> tuple[str, ...]:
    from simulation.faults import FAULTS, LOSSES, TOGETHER

    if text in ("all", "none"):
        return TOGETHER if text == "all" else ()
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        _refuse(f"--faults: there is no {unknown[0]!r}, only all, none, {', '.join(FAULTS)}")
    if "change" in kinds and (losses := LOSSES.intersection(kinds)):
        _refuse(f"--faults: change does not go with {min(losses)}: ask for one of them")
    return kinds


def _rate(text: str) -> str:
    """As a mesh file has it; ends the command if it is none."""
    from federation.mesh_file.keys.lane_values import parse_line_rate
    from federation.mesh_file.quantities import BadSize

    try:
        parse_line_rate(text)
    except BadSize as error:
        _refuse(f"--max-rate: {error}")
    return text


def _returns(text: str) -> Returns:
    """Read a way of handing out again; end the command if the word is none."""
    from relay.packing.memory_egress import Returns

    try:
        return Returns(text)
    except ValueError:
        _refuse(f"--returns: {text!r} is none of {', '.join(Returns)}")


def _asked(kinds: tuple[str, ...]) -> str:
    """What `_kinds` reads as these."""
    from simulation.faults import TOGETHER

    return "all" if kinds == TOGETHER else ",".join(kinds) or "none"


def command_of(scenario: Scenario) -> str:
    """What runs this one again."""
    load, trouble = scenario.load, scenario.trouble
    less = "" if load.first is None else f" --first {load.first}"
    if trouble.without:
        less += f" --without {_ranges(trouble.without)}"
    if scenario.max_rate:
        less += f" --max-rate {scenario.max_rate}"
    if scenario.returns != "fifo":
        less += f" --returns {scenario.returns}"
    return (
        f"isthmus simulate --seed {scenario.seed} --topology {scenario.topology}"
        f" --sites {scenario.sites} --exchanges {scenario.exchanges}"
        f" --messages {load.messages} --big {load.big_one_in}"
        f" --seconds {load.for_s:g} --faults {_asked(trouble.kinds)}"
        f" --every {trouble.every_s:g}{less}"
    )


def _line(outcome: ScenarioOutcome) -> str:
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


def _told(outcome: ScenarioOutcome) -> dict[str, Any]:
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
