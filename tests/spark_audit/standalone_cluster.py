"""A Spark standalone cluster of this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from isthmus.brokers.ports import free_ports
from tests.waiting import until_met

HOME = Path(pyspark.__file__).parent
START_S = 90


@dataclass(slots=True)
class StandaloneCluster:
    """Of the pyspark package. As a context manager it has ended when the block does."""

    folder: Path
    workers: int = 2
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _web_port: int = field(default_factory=lambda: free_ports(1)[0])
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> StandaloneCluster:
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(self.__exit__)
            web = ("--webui-port", str(self._web_port))
            self._start("master", "master.Master", "--port", str(self.port), *web)
            self._wait_for(lambda told: told["status"] == "ALIVE")
            for nth in range(self.workers):
                self._start(
                    f"worker{nth}",
                    "worker.Worker",
                    *("--cores", "1", "--memory", "1g"),
                    *("--webui-port", str(free_ports(1)[0])),
                    *("--work-dir", str(self.folder / f"worker{nth}")),
                    self.master,
                )
            self._wait_for(lambda told: told["aliveworkers"] == self.workers)
            unless_started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed([*self._processes]):
            self.kill(name)

    def kill(self, name: str) -> None:
        """This process and the executors that it started, as when a machine is lost."""
        process = self._processes.pop(name)
        for pid in (*_children(process.pid), process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as said:
            told: dict[str, Any] = json.load(said)
        return told

    def executors_of(self, name: str) -> list[int]:
        """Process IDs of what a worker has started."""
        return _children(self._processes[name].pid)

    def _start(self, name: str, module: str, *arguments: str) -> None:
        log = self.folder / f"{name}.log"
        command = [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{module}"]
        with log.open("wb") as file:
            self._processes[name] = subprocess.Popen(
                [*command, "--host", "127.0.0.1", *arguments],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
                cwd=self.folder,
                stdout=file,
                stderr=file,
            )

    def _wait_for(self, is_so: Callable[[dict[str, Any]], bool]) -> None:
        until_met(
            lambda: self._tells(is_so),
            lambda: f"the cluster's start; see {[*self.folder.glob('*.log')]}",
            START_S,
            every_s=0.2,
        )

    def _tells(self, is_so: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether the master says so. Raises AssertionError if a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                said = (self.folder / f"{name}.log").read_text()[-2000:]
                raise AssertionError(f"{name} ended: {said}")
        try:
            return is_so(self.state())
        except OSError:  # it does not listen yet
            return False


def _children(pid: int) -> list[int]:
    """All that descend from a process, the farthest first."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [*_children(child), child]
    return found
