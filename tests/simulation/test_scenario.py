"""Whole meshes in virtual time: what is promised holds, and a seed says all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dedup.barrier import Barrier, Judgement
from isthmus.cli import app
from relay.delivery.deliverer import Deliverer
from relay.delivery.local_exchange import Outgoing
from relay.packing.packer import Packer
from simulation import search
from simulation.faults import Trouble
from simulation.load import Load
from simulation.memory_brokers import SiteBroker
from simulation.scenario import Scenario, run
from tests.waiting import until

FEW = Load(messages=12, for_s=5.0)
CALM = Trouble(kinds=())
ASKED = ("simulate", "--messages", "12", "--seconds", "5")


@pytest.mark.parametrize(
    ("topology", "sites"),
    [("ring", 3), ("one-way-ring", 3), ("complete", 3), ("tree", 4), ("random", 5)],
)
def test_every_message_comes_to_every_site_once_and_in_order(topology: str, sites: int) -> None:
    outcome = run(Scenario(1, topology, sites, FEW, CALM))
    assert outcome.broken == ""
    assert outcome.published >= 12 * sites  # some of them to two exchanges
    assert (outcome.arrived, outcome.flagged) == (outcome.published * sites, 0)
    assert outcome.virtual_s > 40


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "isthmus", *ASKED, "--seed", "3", "--json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        (told,) = json.loads(done.stdout)["runs"]
        assert told["good"]
        digests.add(told["digest"])
    assert digests == {run(Scenario(3, load=FEW)).trace.digest}


def test_another_seed_gives_another_run() -> None:
    assert run(Scenario(1, load=FEW)).trace.digest != run(Scenario(2, load=FEW)).trace.digest


def test_a_broken_promise_is_told_with_the_command_that_runs_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = SiteBroker.publish

    def lose_one(self: SiteBroker, exchange: str, message: Outgoing) -> bool:
        return message.body.startswith(b"site02/7 ") or take(self, exchange, message)

    monkeypatch.setattr(SiteBroker, "publish", lose_one)
    result = CliRunner().invoke(app, [*ASKED, "--seed", "5", "--faults", "none"])
    assert result.exit_code == 1
    assert "messages have not come, by site: {'site01': 1, 'site02': 1, 'site03': 1}" in (
        result.stdout
    )
    again = (
        "isthmus simulate --seed 5 --topology ring --sites 3 --exchanges 2 --messages 12 --big 150"
        " --seconds 5 --faults none --every 5 --trace"
    )
    assert again in result.stdout


def test_a_node_that_ends_by_itself_is_told_as_what_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(self: Deliverer) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(Deliverer, "run", fail)
    assert "a mistake of ours" in run(Scenario(1, load=FEW, trouble=CALM)).broken


def test_a_callback_that_fails_is_told_as_what_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(packer: Packer) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(Packer, "_watch_memory", fail)
    assert "a mistake of ours" in run(Scenario(1, load=FEW, trouble=CALM)).broken


def test_what_was_put_aside_did_not_arrive_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SiteBroker, "put_aside", 3)
    broken = run(Scenario(1, load=FEW, trouble=CALM)).broken
    assert broken == "I1 at site01: 3 dead letters or in the quarantine"


def test_worlds_in_several_processes_are_the_same_worlds() -> None:
    asked = [*ASKED, "--sites", "2", "--topology", "line", "--seeds", "1..3", "--json"]
    beside, alone = (
        [
            (told["seed"], told["digest"], told["events"])
            for told in json.loads(CliRunner().invoke(app, [*asked, *more]).stdout)["runs"]
        ]
        for more in ([], ["--jobs", "2"])
    )
    assert len(alone) == 3
    assert beside == alone


def test_processes_are_new_now_and_then_and_no_world_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "WORLDS_A_PROCESS", 2)
    worlds = [Scenario(seed, "line", 2, Load(1, 1.0), CALM) for seed in range(1, 8)]
    outcomes = [*search.run_many(worlds, 2)]
    assert [one.scenario.seed for one in outcomes] == [*range(1, 8)]
    assert all(one.is_good for one in outcomes)


@pytest.mark.parametrize("seed", ["5", "33"])
def test_a_drawn_world_is_the_same_with_its_options_written_out(seed: str) -> None:
    asked = ["simulate", "--seed", seed, "--topology", "any", "--json"]
    (drawn,) = json.loads(CliRunner().invoke(app, asked).stdout)["runs"]
    words = drawn["again"].split()[1:]
    assert "any" not in words
    (again,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["runs"]
    assert again["digest"] == drawn["digest"]


def test_the_command_says_which_faults_are_left_out() -> None:
    asked = [*ASKED, "--topology", "line", "--faults", "reset", "--every", "0.5", "--json"]
    (told,) = json.loads(CliRunner().invoke(app, [*asked, "--without", "1,3,4,5..5,7"]).stdout)[
        "runs"
    ]
    assert "--without 1,3..5,7" in told["again"]


def test_a_world_that_fails_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Barrier, judgement: Judgement, *_: Any, **__: Any) -> None:
        self.release(judgement)

    monkeypatch.setattr(Barrier, "commit", fail)
    asked = [*ASKED, "--seed", "1", "--faults", "reset", "--every", "2", "--shrink", "20"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 1
    (again,) = (line for line in result.stdout.splitlines() if line.startswith("  again: "))
    assert "--sites 3" in again  # a ring takes no fewer
    assert "--exchanges 1" in again
    assert "--first " in again
    words = again.removeprefix("  again: isthmus ").removesuffix(" --trace").split()
    assert CliRunner().invoke(app, words).exit_code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ["--without", "some"],
        ["--jobs", "2", "--trace"],
        ["--seeds", "3..1"],
        ["--seeds", "many"],
        ["--topology", "star"],
        ["--faults", "fire"],
    ],
)
def test_a_call_that_makes_no_sense_is_refused(wrong: list[str]) -> None:
    result = CliRunner().invoke(app, ["simulate", *wrong])
    assert result.exit_code == 2
    assert result.stderr


@pytest.mark.long
async def test_a_simulation_that_is_killed_leaves_no_process() -> None:
    words = ["simulate", "--seeds", "1..1000", "--topology", "any", "--jobs", "2"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def workers() -> list[Path]:
        made = [Path(f"/proc/{number}") for number in children.read_text().split()]
        return [one for one in made if b"spawn_main" in (one / "cmdline").read_bytes()]

    try:
        made = await until(lambda: len(workers()) >= 2 and workers(), "two workers", 60)
    finally:
        process.kill()
        await process.wait()
    await until(lambda: not any(one.exists() for one in made), "they end", 60)
