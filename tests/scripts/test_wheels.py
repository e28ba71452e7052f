"""The wheels install where nothing else is, and show there what the README shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
WITHIN_S = 1200.0


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command; return what it prints, of which a failure shows the end."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.long
def test_the_wheels_install_in_a_bare_environment_and_run_the_demo(tmp_path: Path) -> None:
    run("make", "wheels", cwd=TOP)
    run(sys.executable, "-m", "venv", tmp_path / "bare", cwd=tmp_path)
    programs = tmp_path / "bare" / "bin"
    wheels = TOP / "dist"
    install = (programs / "pip", "--no-input", "install", "--quiet", "--find-links", wheels)
    run(*install, "isthmus[audit]", "isthmus-core", cwd=tmp_path)
    pages = {page.name for page in (tmp_path / "bare" / "share" / "man" / "man1").iterdir()}
    assert pages >= {"isthmus.1", "isthmus-status.1"}
    # Refused at the start if the core's wheel is missing.
    environ = ("env", "ISTHMUS_CORE=native")
    said = run(*environ, programs / "isthmus", "demo", cwd=tmp_path)
    assert "PROVEN" in said
