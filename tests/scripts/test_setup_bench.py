"""The set-up of other products for the benchmarks: plain when a tool or a checksum is not right."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NEEDED = ("cat", "dirname", "env", "flock", "mkdir", "mv", "rm", "sh", "sha256sum", "tail")
KAFKA = Path("benchmarks/compare/kafka")


class BenchCheckout:
    """A copy of what the set-up reads, on a machine that has only the programs we give it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        for part in (self.programs, folder / "scripts", folder / KAFKA):
            part.mkdir(parents=True)
        for script in ("setup-bench.sh", "fetch-jars.sh"):
            shutil.copy(TOP / "scripts" / script, folder / "scripts")
        shutil.copy(TOP / KAFKA / "pom.xml", folder / KAFKA)
        self.stub(folder / "scripts" / "setup-tool.sh")
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None
            (self.programs / name).symlink_to(found)

    def stub(self, program: Path, script: str = "exit 0") -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(self, product: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "scripts" / "setup-bench.sh"), product],
            env={"PATH": str(self.programs)},
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> BenchCheckout:
    return BenchCheckout(tmp_path)


def with_maven(checkout: BenchCheckout, checksum: str) -> None:
    """Give the machine Java, and a Maven that brings one jar, `a.jar` with the text `jar`."""
    checkout.stub(checkout.programs / "java")
    place = checkout.folder / ".bench" / "kafka.part"
    checkout.stub(checkout.programs / "mvn", f"mkdir -p {place}; echo jar >{place}/a.jar")
    (checkout.folder / KAFKA / "jars.sha256").write_text(f"{checksum}  a.jar\n")


def sha256(text: str) -> str:
    done = subprocess.run(["sha256sum"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def test_a_machine_without_java_gets_one_line_that_says_what_to_install(
    checkout: BenchCheckout,
) -> None:
    done = checkout.run("kafka")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "measuring kafka needs a Java runtime, 17 or newer (java is not in PATH): "
        "install default-jre-headless, or name other rows"
    ]


def test_a_machine_without_maven_gets_one_line_that_says_what_to_install(
    checkout: BenchCheckout,
) -> None:
    checkout.stub(checkout.programs / "java")
    (checkout.folder / KAFKA / "jars.sha256").touch()
    done = checkout.run("kafka")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "fetching Kafka needs Maven (mvn is not in PATH): install maven"
    ]


def test_jars_with_the_named_checksums_are_put_in_place_once(checkout: BenchCheckout) -> None:
    with_maven(checkout, sha256("jar\n"))
    done = checkout.run("kafka")
    assert (done.returncode, done.stdout) == (0, "fetching Kafka ... done\n")
    assert (checkout.folder / ".bench" / "kafka" / "a.jar").read_text() == "jar\n"
    again = checkout.run("kafka")
    assert (again.returncode, again.stdout) == (0, "")


def test_a_jar_with_another_checksum_is_refused(checkout: BenchCheckout) -> None:
    with_maven(checkout, sha256("another jar\n"))
    done = checkout.run("kafka")
    assert done.returncode == 1
    assert "a.jar: FAILED" in done.stderr
    assert not (checkout.folder / ".bench" / "kafka").exists()


def test_a_product_that_nobody_knows_is_refused(checkout: BenchCheckout) -> None:
    done = checkout.run("pigeons")
    assert (done.returncode, done.stderr) == (
        2,
        f"usage: {checkout.folder}/scripts/setup-bench.sh nats|kafka\n",
    )
