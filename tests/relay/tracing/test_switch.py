"""The switch of tracing: off without the variable, and off with a reason where it cannot be on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relay.tracing.switch import export_of

ON = {"OTEL_TRACES_EXPORTER": "otlp"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"},
        ON | {"OTEL_SDK_DISABLED": "true"},
    ],
)
def test_it_is_off_unless_turned_on_and_says_nothing(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert export_of("acme", environ) is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin"),
        (ON | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        (
            ON
            | {
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            },
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc",
        ),
    ],
)
def test_what_a_node_cannot_do_is_named_and_the_node_goes_on_without(
    environ: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert export_of("acme", environ) is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.event == "traces-off"  # type: ignore[attr-defined]


def test_a_variable_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    assert export_of("acme", ON) is None
    (record,) = caplog.records
    assert "schedule_delay_millis" in record.getMessage()


def test_the_protocol_of_traces_goes_before_that_of_all() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    export = export_of("acme", ON | variables)
    assert export is not None
    export.close()


def python(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return ran.stdout + ran.stderr


_EVERYTHING = """
import os, pkgutil, sys, importlib
import relay, isthmus.commands.relay
from relay.tracing.switch import export_of
for package in ("node", "packing", "links", "delivery", "log", "admin", "tracing"):
    parent = importlib.import_module("relay." + package)
    for module in pkgutil.walk_packages(parent.__path__, parent.__name__ + "."):
        if module.name != "relay.tracing.otlp":
            importlib.import_module(module.name)
assert export_of("acme", {}) is None
"""


def test_a_node_without_traces_imports_nothing_of_opentelemetry() -> None:
    found = python(_EVERYTHING + "print([m for m in sys.modules if 'opentelemetry' in m])")
    assert found.strip() == "[]"


def test_a_node_without_the_extra_names_the_package_and_goes_on() -> None:
    missing = "import sys; sys.modules['opentelemetry'] = None"
    tried = "from relay.tracing.switch import export_of"
    found = python(f"{missing}; {tried}; print(export_of('acme', {ON!r}))")
    assert found.startswith("None")
    assert "opentelemetry" in found
    assert "pip install 'isthmus[otel]'" in found
