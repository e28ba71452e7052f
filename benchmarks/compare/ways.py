"""The ways by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.federation_way import FederationWay
from benchmarks.compare.isthmus_way import IsthmusMesh, IsthmusWay
from benchmarks.compare.kafka.way import MirrorMakerWay
from benchmarks.compare.nats.way import NatsWay
from benchmarks.compare.shovel_way import ShovelWay
from benchmarks.compare.way import Way

TUNED_PREFETCH = 10_000


def make(names: Sequence[str], folder: Path) -> list[Way]:
    """Ways in their order. Ways of Isthmus share their nodes."""
    exchanges = {"isthmus": ("orders", "split"), "isthmus-transparent": ("across", "transparent")}
    mesh = IsthmusMesh(
        folder,
        [
            {"name": exchange, "mode": mode}
            for name, (exchange, mode) in exchanges.items()
            if name in names
        ],
    )
    made: list[Way] = []
    for name in names:
        if name in exchanges:
            made.append(IsthmusWay(mesh, exchanges[name][0], name))
        elif name == "federation-tuned":
            made.append(FederationWay(name, TUNED_PREFETCH))
        elif name == "federation":
            made.append(FederationWay())
        elif name == "nats":
            made.append(NatsWay(folder))
        elif name == "mirror-maker":
            made.append(MirrorMakerWay(folder))
        else:
            made.append(ShovelWay())
    return made
