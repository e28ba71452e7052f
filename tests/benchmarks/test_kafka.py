"""MirrorMaker 2 as a way: properties and commands of Kafka's programs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compare.downloads import version
from benchmarks.compare.kafka import config
from benchmarks.compare.kafka.config import KafkaSite

ORIGIN = KafkaSite("site0", Path("/some/site0"), 9092, 9093, 9094, 20001)
DESTINATION = KafkaSite("site1", Path("/some/site1"), 9192, 9193, 9194, 20002)


def properties(text: str) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in text.splitlines())


def listeners(text: str) -> dict[str, str]:
    return dict(listener.split("://", 1) for listener in text.split(","))


def test_a_server_sends_who_comes_over_the_line_back_over_the_line() -> None:
    told = properties(config.server_properties(ORIGIN))
    assert listeners(told["listeners"])["FAR"] == "127.0.0.1:9094"
    assert listeners(told["advertised.listeners"])["FAR"] == "127.0.0.1:20001"
    assert listeners(told["advertised.listeners"])["PLAINTEXT"] == "127.0.0.1:9092"
    protocols = told["listener.security.protocol.map"].split(",")
    assert {one.split(":")[0] for one in protocols} == listeners(told["listeners"]).keys()


def test_a_server_keeps_its_log_in_its_own_folder() -> None:
    assert properties(config.server_properties(ORIGIN))["log.dirs"] == "/some/site0/log"


def test_mirror_maker_reads_over_the_line_and_writes_at_home_and_not_back() -> None:
    told = properties(config.mirror_maker_properties(ORIGIN, DESTINATION))
    assert told["site0.bootstrap.servers"] == "127.0.0.1:20001"
    assert told["site1.bootstrap.servers"] == "127.0.0.1:9192"
    assert told["site0->site1.enabled"] == "true"
    assert told["site0->site1.topics"] == config.TOPIC
    assert told["site1->site0.enabled"] == "false"
    factors = [value for key, value in told.items() if key.endswith("replication.factor")]
    assert factors == ["1"] * 7


def test_programs_are_run_from_the_jars_that_were_fetched() -> None:
    file = Path("/some/server.properties")
    command = config.server_command(Path("/jars"), file)
    assert command[0] == "java"
    assert command[-4:] == ("-cp", "/jars/*", "kafka.Kafka", str(file))
    assert "-Xmx1G" in command
    assert "-Xmx2G" in config.mirror_maker_command(Path("/jars"), file)


def test_all_jars_of_kafka_are_pinned_in_the_version_that_is_told() -> None:
    lines = (Path(config.__file__).parent / "jars.sha256").read_text().splitlines()
    jars = [line.split("  ")[1] for line in lines]
    assert all(len(line.split("  ")[0]) == 64 for line in lines)
    assert {f"kafka_2.13-{version('kafka')}.jar", f"connect-mirror-{version('kafka')}.jar"} <= {
        *jars
    }
