"""The set-up script: fast when nothing is missing, plain when it cannot help."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NEEDED = ("cat", "dirname", "env", "flock", "id", "mkdir", "sh", "sha256sum", "tail", "tr")


class Checkout:
    """A copy of what the set-up reads, on a machine that has only the programs we give it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        shutil.copytree(TOP / "scripts", folder / "scripts")
        for name in ("pyproject.toml", "requirements.lock", "requirements-audit.lock"):
            shutil.copy(TOP / name, folder)
        for name in NEEDED:
            self.link(name, shutil.which(name))

    def link(self, name: str, target: str | None) -> None:
        assert target is not None, f"no {name} here"
        (self.programs / name).symlink_to(target)

    def stub(self, name: str, script: str = "exit 0") -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(
        self, *words: str, script: str = "setup.sh", core: str = "pure"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "scripts" / script), *words],
            env={
                "PATH": str(self.programs),
                "PIP_CERT": os.devnull,
                "ISTHMUS_CORE": core,
                "HOME": str(self.folder),
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_where_packages_cannot_be_installed_it_says_what_to_install_and_exits_2(checkout):
    done = checkout.run()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot install packages on this system" in done.stderr
    # No erl in PATH, so RabbitMQ does not count as installed wherever this runs.
    for package in ("rabbitmq-server", "amqp-tools", "python3", "python3-venv"):
        assert package in done.stderr.splitlines()[-1].split()


def test_an_unknown_argument_is_refused(checkout):
    done = checkout.run("spark")
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_when_nothing_is_missing_it_says_and_does_nothing(checkout):
    fitted_out(checkout)
    stamp = checkout.folder / ".venv" / ".isthmus-setup"
    stamp.write_text(wanted_stamp(checkout))
    before = stamp.stat().st_mtime_ns
    done = checkout.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stamp.stat().st_mtime_ns == before


def test_a_changed_lock_file_is_installed_again(checkout):
    fitted_out(checkout)
    stamp = checkout.folder / ".venv" / ".isthmus-setup"
    stamp.write_text(wanted_stamp(checkout))
    with (checkout.folder / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    checkout.stub("rm")
    checkout.stub("mv", 'exec cp "$1" "$2"')
    checkout.link("cp", shutil.which("cp"))
    done = checkout.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "making .venv ... done",
        "installing Python packages ... done",
        "installing isthmus itself ... done",
        "checking that all fits together ... done",
        "compiling isthmus ... done",
    ]
    assert stamp.read_text() == wanted_stamp(checkout)
    calls = (checkout.folder / "calls").read_text()
    assert "-m pip --no-input install --require-hashes -r requirements.lock" in calls
    assert "-m pip --no-input install --no-deps --no-build-isolation -e ." in calls


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_checkout_that_was_moved_gets_a_new_venv(tmp_path: Path, is_moved: bool) -> None:
    checkout = Checkout(tmp_path / "former")
    fitted_out(checkout)
    (checkout.folder / ".venv" / ".isthmus-setup").write_text(wanted_stamp(checkout))
    place = tmp_path / "former"
    (place / ".venv" / "pyvenv.cfg").write_text(f"command = python3 -m venv {place}/.venv\n")
    if is_moved:
        moved = tmp_path / "moved"
        shutil.copytree(checkout.folder, moved, symlinks=True)
        checkout.folder, checkout.programs = moved, moved / "bin"
    # It says that it removes .venv, and does not: the Python here could not make another.
    checkout.stub("rm", f'echo "$*" >>{tmp_path}/removed')
    checkout.stub("mv", "exit 0")
    done = checkout.run()
    assert done.returncode == 0, done.stdout + done.stderr
    removed = (tmp_path / "removed").read_text() if is_moved else ""
    assert removed == ("-rf .venv\n" if is_moved else "")
    assert ("making .venv" in done.stdout) == is_moved


def with_core(checkout: Checkout) -> None:
    shutil.copytree(TOP / "core", checkout.folder / "core", ignore=shutil.ignore_patterns("target"))
    (checkout.folder / ".venv").mkdir()
    for name in ("cut", "head", "rm", "sort"):
        checkout.link(name, shutil.which(name))


def test_without_a_rust_compiler_one_line_says_so_and_all_goes_on(checkout: Checkout) -> None:
    with_core(checkout)
    done = checkout.run(script="build-core.sh", core="auto")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "isthmus: without the native core (no Rust compiler): as correct, but slower"
    ]
    assert not (checkout.folder / ".venv" / ".isthmus-core").exists()


@pytest.mark.parametrize(
    ("compiler", "stdout", "why"),
    [
        ("1.62.1", [], "it needs rustc 1.63 or newer"),
        (
            "1.95.0",
            ["building the native core ... failed"],
            "the end of .isthmus/core.log says why",
        ),
    ],
    ids=["too old", "does not build"],
)
def test_a_core_that_cannot_be_built_is_left_out(
    checkout: Checkout, compiler: str, stdout: list[str], why: str
) -> None:
    with_core(checkout)
    checkout.stub("cargo", "exit 1")
    checkout.stub("cc")
    checkout.stub("rustc", f"echo rustc {compiler} of some day")
    done = checkout.run(script="build-core.sh", core="auto")
    assert (done.returncode, done.stdout.splitlines()) == (0, stdout)
    assert why in done.stderr


def test_a_failed_step_shows_the_end_of_its_log(checkout):
    fitted_out(checkout, pip="echo no such package; exit 1")
    checkout.stub("rm")
    done = checkout.run()
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "installing Python packages ... failed"
    assert done.stderr.splitlines()[-2:] == [
        "--- the end of .isthmus/setup.log:",
        "no such package",
    ]


def fitted_out(checkout: Checkout, pip: str = "exit 0") -> None:
    """Give it Erlang, amqp-tools and a Python that records its calls; RabbitMQ is where it is."""
    for name in ("erl", "amqp-publish"):
        checkout.stub(name)
    script = (
        f'case "$*" in *"-m pip"*) echo "$*" >>{checkout.folder}/calls; {pip};; '
        f'*"-m venv"*) exit 0;; *) exec {sys.executable} "$@";; esac'
    )
    checkout.stub("python3", script)
    (checkout.folder / ".venv" / "bin").mkdir(parents=True)
    (checkout.folder / ".venv" / "bin" / "python").symlink_to(checkout.programs / "python3")


def wanted_stamp(checkout: Checkout) -> str:
    files = ("requirements.lock", "pyproject.toml", "scripts/setup.sh", "requirements.lock")
    content = b"".join((checkout.folder / name).read_bytes() for name in files)
    return f"{hashlib.sha256(content).hexdigest()}  -\n{sys.version}\n{checkout.folder.resolve()}\n"
