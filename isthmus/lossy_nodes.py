"""Nodes that lose messages on request, for the demo's last act and tests.

    python -m isthmus.lossy_nodes relay mesh.yaml --site tokyo
    python -m isthmus.lossy_nodes up mesh.yaml

The program equals `isthmus`, except that a message published alone with the header `x-demo-lose:
HOW@SITE` is lost at the site, as by a bug of ours, and so is each piece of a message that is too
big for one batch. No other program reads the header.

    link     the link's receiver acknowledges a batch that the site's log lacks
    before   the deliverer passes over the message before the barrier
    after    the barrier's commit remembers the message, without delivery; not for pieces
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any

from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from federation.mesh import IdentityScope
from isthmus import command_line
from isthmus.demo import LOSS_HEADER, LOSSY_NODES, Loss
from isthmus.up import mesh_children
from relay.batches.batch import BatchHeader, BatchKind, Entry, LoggedBatch
from relay.batches.format import decode_entries
from relay.batches.opened_batch import content_of
from relay.bulk_amqp import content_header, field_table
from relay.delivery.context import DeliveryContext
from relay.delivery.deliverer import DeliveryConnection
from relay.log.run import Appended, LogEvents
from relay.log.writer import LogWriter
from relay.node.bindings import StateLogMemory
from relay.node.node import SiteNode
from relay.node.parts import DeliveryParts, NodeParts
from relay.state.codec import encode_name
from relay.state.node_state import Commit, NodeState

_LOSSES = {BatchKind.MESSAGES: tuple(Loss), BatchKind.FRAGMENT: (Loss.LINK, Loss.BEFORE)}
"""Losses that a batch of each kind can ask for."""


class LossyWriter(LogWriter):
    """Log writer that drops messages to be lost at the link."""

    def losing(self, site: str) -> LossyWriter:
        self._lossy_site = site
        return self

    def append_nowait(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        if len(header.path) > 1 and _loss(header, data, self._lossy_site)[0] is Loss.LINK:
            self.logged.add(header.name)
            done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
            done.set_result(Appended.LOGGED)
            return done
        return super().append_nowait(header, data)


class LossyContext(DeliveryContext):
    """Delivery context that drops messages to be lost at the deliverer."""

    def wants(self, batch: LoggedBatch) -> bool:
        if not super().wants(batch):
            return False
        series = batch.header.name.series
        if series.origin == self.settings.cluster_id:
            return True
        loss, entry = _loss(batch.header, batch.data, self.settings.site)
        if loss is None or entry is None:
            return True
        if loss is Loss.AFTER:
            self._remember(batch.header, entry)
        return False

    def _remember(self, header: BatchHeader, entry: Entry) -> None:
        """Commit like the deliverer, without delivery and ledger row."""
        series = header.name.series
        exchange = self.mesh.exchanges[series.exchange]
        by_origin = exchange.scope is IdentityScope.ORIGIN
        judgement = self.barrier.judge(
            self,
            [scope_prefix(series.exchange, series.origin if by_origin else None) + entry.identity],
            [content_of(entry)],
            places_of(place_prefix(encode_name(header.name)), 0, 1),
        )
        commit = Commit()
        self.barrier.commit(judgement, commit.changes)
        self.state.write(commit)


class LossyParts(NodeParts):
    """Parts of a node with losing stages."""

    def writer(self, state: NodeState, events: LogEvents) -> LogWriter:
        return LossyWriter(
            self.open_log,
            StateLogMemory(state),
            events,
            origin=self.cluster_id,
            formats=self.formats,
        ).losing(self.site)

    def context(self, given: DeliveryParts) -> tuple[DeliveryContext, DeliveryConnection]:
        made, connection = super().context(given)
        values: dict[str, Any] = {one.name: getattr(made, one.name) for one in fields(made)}
        return LossyContext(**values), connection


def _loss(header: BatchHeader, data: bytes, site: str) -> tuple[Loss | None, Entry | None]:
    """Return the requested loss of a batch's only message, or piece, at the site, and the message.

    The barrier knows messages by their whole bodies, so that a piece cannot be remembered.
    """
    if header.kind not in _LOSSES or header.entry_count != 1:
        return None, None
    (entry,) = decode_entries(data)
    value = content_header.header(entry.properties, LOSS_HEADER.encode())
    for loss in _LOSSES[header.kind]:
        if value == field_table.long_string(loss.at(site).encode()):
            return loss, entry
    return None, None


def main() -> None:
    SiteNode.parts_type = LossyParts
    mesh_children.PROGRAM = LOSSY_NODES
    command_line.main()


if __name__ == "__main__":
    main()
