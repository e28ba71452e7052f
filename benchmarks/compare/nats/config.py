"""Texts and requests that set NATS servers up: what is not named stays as NATS ships it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STREAM = "ORDERS"
CONSUMER = "bench"
_SUBJECTS = "orders"


@dataclass(frozen=True, slots=True)
class NatsSite:
    """Server of a site and its ports; leafs dial `line_port`, which leads to `leaf_port`."""

    name: str
    folder: Path
    client_port: int
    leaf_port: int
    line_port: int
    monitor_port: int


def subject_of(key: bytes) -> bytes:
    """Return the subject of a routing key."""
    return _SUBJECTS.encode() + b"." + key


def server_config(site: NatsSite, remotes: Sequence[int]) -> str:
    """Return a server's configuration file; `remotes` are the ports of servers that this one is a
    leaf of.

    A leaf that connects anew goes to where its server says, which has to be the line again.
    """
    urls = "".join(f'    {{ url: "nats-leaf://127.0.0.1:{port}" }}\n' for port in remotes)
    return f"""\
server_name: {site.name}
listen: "127.0.0.1:{site.client_port}"
http: "127.0.0.1:{site.monitor_port}"
jetstream {{
  store_dir: "{site.folder}"
  domain: {site.name}
}}
leafnodes {{
  listen: "127.0.0.1:{site.leaf_port}"
  advertise: "127.0.0.1:{site.line_port}"
  remotes: [
{urls}  ]
}}
"""


def origin_stream() -> Mapping[str, Any]:
    """Return the request for the stream that applications publish to."""
    return {**_STREAM, "subjects": [f"{_SUBJECTS}.>"]}


def sourced_stream(origin: str) -> Mapping[str, Any]:
    """Return the request for a destination's stream."""
    external = {"api": f"$JS.{origin}.API", "deliver": ""}
    return {**_STREAM, "sources": [{"name": STREAM, "external": external}]}


def pull_consumer() -> Mapping[str, Any]:
    """Return the request for the consumer that applications pull from."""
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "deliver_policy": "all"}
    return {"stream_name": STREAM, "config": config}


_STREAM = {"name": STREAM, "storage": "file", "num_replicas": 1, "retention": "limits"}

_UNITS_MS = {"h": 3.6e6, "m": 6e4, "s": 1e3, "ms": 1.0, "µs": 1e-3, "us": 1e-3, "ns": 1e-6}


def milliseconds(duration: str) -> float:
    """Parse a duration as Go prints it: `1m2.5s`, `201.3ms`, `85µs`."""
    parts = re.findall(r"([\d.]+)(h|ms|m|µs|us|ns|s)", duration)
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
