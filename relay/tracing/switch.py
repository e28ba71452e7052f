"""Switch of tracing: variables of the environment, as every program with OpenTelemetry has them.

`OTEL_TRACES_EXPORTER=otlp` turns tracing on. Where it is on and cannot be, the node says why and
goes on without: messages are worth more than spans.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.tracing.otlp import OtlpExport

log = logging.getLogger(__name__)

EXPORTER = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""Variables of the protocol; the first that is set counts."""
HTTP = "http/protobuf"


class TracesImpossible(Exception):
    """Traces are turned on and cannot be made; the message has the reason."""


def export_of(mesh: str, environ: Mapping[str, str]) -> OtlpExport | None:
    """Return the export of a process's spans, or None where tracing is off or cannot be on."""
    exporter = environ.get(EXPORTER, "").strip().lower()
    if exporter in ("", "none") or environ.get(DISABLED, "").strip().lower() == "true":
        return None
    try:
        return _export(mesh, exporter, environ)
    except TracesImpossible as error:
        log.error("no traces: %s", error, extra={"event": "traces-off"})
        return None


def _export(mesh: str, exporter: str, environ: Mapping[str, str]) -> OtlpExport:
    """Begin to export. Raises TracesImpossible."""
    if exporter != "otlp":
        raise TracesImpossible(f"{EXPORTER}={exporter}: a node exports by otlp alone")
    given = ((name, environ.get(name, "").strip()) for name in PROTOCOLS)
    variable, protocol = next(filter(itemgetter(1), given), ("", HTTP))
    if protocol != HTTP:
        raise TracesImpossible(f"{variable}={protocol}: a node exports by {HTTP} alone")
    try:
        from relay.tracing.otlp import OtlpExport
    except ImportError as error:
        raise TracesImpossible(
            f"a package is not installed ({error}): pip install 'isthmus[otel]'"
        ) from error
    try:
        return OtlpExport(mesh)
    except ValueError as error:
        raise TracesImpossible(f"a variable OTEL_... cannot be read: {error}") from error
