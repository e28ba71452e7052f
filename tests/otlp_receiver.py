"""A collector of spans for tests: OTLP over HTTP on a loopback port, each request decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came. IDs are in hexadecimal digits; a root's parent is empty."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    resource: dict[str, Any]
    begun_ns: int
    ended_ns: int

    @property
    def site(self) -> str:
        site: str = self.attributes["isthmus.site"]
        return site


@dataclass
class OtlpReceiver:
    """Collector that keeps what comes, and answers as it is told."""

    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    body: bytes = b""
    answers: threading.Event = field(default_factory=threading.Event)
    """Requests wait for an answer until it is set."""

    def take(self, headers: dict[str, str], data: bytes) -> None:
        self.headers.append(headers)
        if self.status == 200:
            self.spans += _decoded(data)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A collector that answers, until told otherwise, with success."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.answers.wait()
            receiver.take(dict(self.headers), data)
            self.send_response(receiver.status)
            self.send_header("Content-Length", str(len(receiver.body)))
            self.end_headers()
            self.wfile.write(receiver.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    receiver.answers.set()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _decoded(data: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    _plain(span.attributes),
                    _plain(resource.resource.attributes),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
