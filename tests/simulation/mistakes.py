"""Mistakes that the simulation has to find: exact replacements in a copy of the product.

The programmer's mistakes that a relay is most likely to have, and that cost messages. Each names
the options with which the simulation finds it soonest, and the seed at which it did.
"""

from __future__ import annotations

from tests.simulation.content_mistakes import CONTENT_MISTAKES
from tests.simulation.deferral_mistakes import DEFERRAL_MISTAKES
from tests.simulation.mistake import Mistake
from tests.simulation.partition_mistakes import PARTITION_MISTAKES

OF_NODES = "--nodes 2 --faults takeover,journal --every 1 --messages 60 --seconds 20"
OF_SLOTS = "--slots 3 --faults none --messages 20 --seconds 5"
OF_THREE = "--nodes 3 --faults takeover,journal --every 0.7 --messages 100 --seconds 30"
OF_GROUPS = "--topology multicast --faults lossy-group,deaf --every 1 --messages 40 --seconds 20"
NONE_BEFORE = (
    "relay/group/group_task.py",
    """\
            if self.appending_bytes > _APPENDING_BYTES or not self._follows(header):
""",
    """\
            if self.appending_bytes > _APPENDING_BYTES:
""",
)
"""Guard taken out: a batch from the group is appended only behind the one before in its series."""

MISTAKES = (
    Mistake(
        "ack before confirm",
        "relay/packing/outbox.py",
        """\
        confirmed = self._log.append_nowait(header, data)
""",
        """\
        appending = self._log.append_nowait(header, data)
        appending.add_done_callback(lambda done: done.cancelled() or done.exception())
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
""",
        "--faults late,log,kill --every 0.3 --messages 100 --seconds 20",
        2,
        "I5 at",
    ),
    Mistake(
        "position before commit",
        "relay/delivery/deliverer.py",
        """\
        settlement.outstanding(delivery.flow, settlement.reader)
""",
        "",
        "--faults kill,slow,full,confirms --every 0.5 --messages 40 --seconds 20",
        1,
        "I8: the deliverer",
    ),
    Mistake(
        "path not appended",
        "relay/links/receiver/machine.py",
        """\
        ours = replace(header, path=(*header.path, self._own))
        return [Append(ours, passed_on, session.number, number)]
""",
        """\
        return [Append(header, bytes(batch), session.number, number)]
""",
        "--topology line --sites 3 --faults none --messages 10 --seconds 5",
        1,
        "I8: the link",
    ),
    Mistake(
        "interval off by one",
        "relay/batches/name_set.py",
        """\
        return bounds is not None and bisect_right(bounds, name[1]) % 2 == 1
""",
        """\
        return bounds is not None and bisect_right(bounds, name[1] - 1) % 2 == 1
""",
        "--topology line --sites 2 --faults none --messages 10 --seconds 5",
        1,
        "after 900 s",
    ),
    Mistake(
        "no flag on replay",
        "relay/delivery/chunk_builder.py",
        """\
            chunk.flagged.update(numbers)
""",
        "",
        "--faults kill --every 0.3 --messages 100 --seconds 20",
        2,
        "I2 at",
    ),
    Mistake(
        "a flag too many",
        "relay/delivery/flow_delivery.py",
        """\
            self._move(state, writing)
            self._context.state.write(writing)
""",
        "",
        "--faults stop,slow --every 0.3 --messages 100 --seconds 20",
        1,
        "I2 at",
    ),
    Mistake(
        "barrier key without exchange",
        "relay/delivery/part_builder.py",
        """\
            self._prefixes[within] = scope_prefix(self._flow.exchange, within)
""",
        """\
            self._prefixes[within] = scope_prefix("", within)
""",
        "--faults none --messages 20 --seconds 5",
        1,
        "I8: the deliverer",
    ),
    Mistake(
        "settled early",
        "relay/delivery/flow_delivery.py",
        """\
        self._move(announce(self._state, parts), writing)
        await self._context.state.write_synced(writing)
""",
        """\
        self._move(announce(self._state, parts), writing)
        for part in chunk.parts:
            for name in part.names:
                self._context.settled.add(name)
            writing.settled(self._context.settled, [name.series])
        await self._context.state.write_synced(writing)
""",
        "--faults kill --every 0.3 --messages 100 --seconds 20",
        1,
        "I8: the deliverer",
    ),
    Mistake(
        "old incarnation not void",
        "relay/batches/incarnation.py",
        """\
        return end is not None and header.incarnation_sequence > end
""",
        """\
        return False
""",
        "--faults kill,late,egress,log --every 0.4 --messages 100 --seconds 20",
        1,
        "I2 at",
    ),
    Mistake(
        "ack before append",
        "relay/links/receiver/machine.py",
        """\
        return [Append(ours, passed_on, session.number, number)]
""",
        """\
        session.done(number)
        return [
            *self._ack_if_due(session, now, wall_ms),
            Append(ours, passed_on, session.number, number),
        ]
""",
        "--faults disk --every 1 --messages 40 --seconds 20",
        1,
        "I8: the link",
    ),
    Mistake(
        "nonce not checked",
        "relay/links/sender/machine.py",
        """\
        if message.nonce != self._nonce:
            return self._drop("of another session")
        if isinstance(message, Welcome):
""",
        """\
        if isinstance(message, Welcome):
""",
        "--topology line --sites 2 --faults repeat,reset,disk --every 0.3 --messages 200"
        " --seconds 20",
        7,
        "I8: the link",
    ),
    Mistake(
        "retention unnoticed",
        "relay/log/reader.py",
        """\
        if first > needed.offset + 1:
            raise LogGap(needed, first)
        self._place = None  # the eaten batches were done with
""",
        """\
        self._place = None  # the eaten batches were done with
""",
        "--topology line --faults retention,cut,kill --every 0.7 --messages 60 --seconds 20",
        8,
        "I8: the deliverer",
    ),
    Mistake(
        "tail loss not noticed",
        "relay/log/knowledge.py",
        """\
        for name in lost:
            names.add(name)
            self.logged.discard(name)
""",
        """\
        for name in lost:
            names.add(name)
""",
        "--topology line --faults tail,cut --every 1 --messages 60 --seconds 20",
        3,
        "after 900 s messages have not come",
    ),
    Mistake(
        "compares by place",
        "relay/packing/comeback/past.py",
        """\
        if not self.in_order:
            return ReturnedInAnyOrder(""",
        """\
        if False:
            return ReturnedInAnyOrder(""",
        "--returns shuffled --faults kill,egress,log --every 0.5 --messages 100 --seconds 20",
        1,
        "I2 at",
    ),
    Mistake(
        "takes late messages for new",
        "relay/packing/flow_packer.py",
        """\
            if redelivered:
                digest = message_digest(key, cleaned.properties, body)
""",
        """\
            if False:
                digest = message_digest(key, cleaned.properties, body)
""",
        "--returns shuffled --faults kill,egress,log --every 0.5 --messages 100 --seconds 20",
        1,
        "I2 at",
    ),
    Mistake(
        "row not checked",
        "dedup/journal/journal_writer.py",
        """\
        if found is None or found.owner != self._owner:
""",
        """\
        if found is None:
""",
        OF_NODES,
        2,
        "I2 at",
    ),
    Mistake(
        "checked before the row",
        "dedup/journal/journal_writer.py",
        """\
                await self._journal.write(row)
                found = await self._journal.ownership()
""",
        """\
                found = await self._journal.ownership()
                await self._journal.write(row)
""",
        OF_THREE,
        15,
        "I2 at",
    ),
    Mistake(
        "end read before the epoch",
        "relay/cluster/slot_turns.py",
        """\
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, copy)
""",
        """\
        await taking._certain(lambda: catch_up(self._journal, copy))
        owner = await taking.raise_epoch()
        await taking._certain(lambda: self._journal.begin(owner, copy.last_row))
""",
        OF_NODES,
        35,
        "I6: the ledger",
    ),
    Mistake(
        "epoch used again",
        "dedup/journal/slot_taking.py",
        """\
        epoch = 1 if before is None else before.owner.epoch + 1
""",
        """\
        epoch = 1 if before is None else before.owner.epoch
""",
        OF_NODES,
        1,
        "AssertionError: a row is written once",
    ),
    Mistake(
        "epoch begins one row late",
        "dedup/journal/slot_taking.py",
        """\
        has_begun = await self._certain(lambda: self._journal.begin(owner, copy.last_row))
""",
        """\
        has_begun = await self._certain(lambda: self._journal.begin(owner, copy.last_row + 1))
""",
        OF_NODES,
        1,
        "NodeStopped: the journal of the state",
    ),
    Mistake(
        "row under the former epoch",
        "dedup/journal/journal_writer.py",
        """\
        row = JournalRow(self.last_row + 1, self._owner.epoch, encode_row(writes))
""",
        """\
        row = JournalRow(self.last_row + 1, self._owner.epoch - 1, encode_row(writes))
""",
        OF_NODES,
        2,
        "NodeStopped: the journal of the state",
    ),
    Mistake(
        "announced before the journal",
        "relay/delivery/flow_delivery.py",
        """\
        await self._context.state.write_synced(writing)
""",
        """\
        self._context.state.write(writing)
""",
        OF_NODES,
        1,
        "I2 at",
    ),
    Mistake(
        "what waits for the journal unread",
        "dedup/journal/journaled_store.py",
        """\
        if not waiting:
            return self._local.get_many(table, keys)
        found:""",
        """\
        if True:
            return self._local.get_many(table, keys)
        found:""",
        OF_NODES,
        1,
        "I2 at",
    ),
    Mistake(
        "lock kept by a cancelled packer",
        "relay/packing/packer.py",
        """\
            if self._egress is not None:
                await self._egress.close(patient=self._finished)  # first: it has the lock
            await asyncio.gather(*tasks, return_exceptions=True)
""",
        """\
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._egress is not None:
                await self._egress.close(patient=self._finished)
""",
        OF_NODES,
        7,
        "after 900 s messages have not come",
    ),
    Mistake(
        "mesh taken up by an ended run",
        "relay/node/node.py",
        """\
                    held.callback(self._let_go)
""",
        "",
        "--nodes 2 --faults takeover,change,kill --every 1 --messages 60 --seconds 20",
        1,
        "StoreClosed",
    ),
    Mistake(
        "deleted rows passed over",
        "dedup/journal/slot_taking.py",
        "    snapshot = await journal.snapshot() if is_behind else None\n",
        "    is_behind, snapshot = False, None\n",
        OF_NODES,
        4,
        "I2 at",
    ),
    Mistake(
        "copy begins anew behind the snapshot",
        "dedup/journal/slot_copy.py",
        """\
        last.put(COPY, _LAST_ROW, self.last_row.to_bytes(8))
""",
        """\
        last.put(COPY, _LAST_ROW, (self.last_row + 1).to_bytes(8))
""",
        OF_NODES,
        8,
        "I6: the ledger",
    ),
    Mistake(
        "void rows count",
        "dedup/journal/journal.py",
        """\
        if is_certain if end is None else row.number <= end:
""",
        """\
        if is_certain or end is not None:
""",
        "--nodes 2 --faults takeover,journal --every 0.5 --messages 200 --seconds 40 --sites 2"
        " --topology line",
        41,
        "I6: the ledger",
    ),
    Mistake(
        "strand's share by the sender's slots",
        "relay/links/forwarding.py",
        """\
    return SlotShare(mesh.sites[link.receiver].slots, link.slots.receiver)
""",
        """\
    return SlotShare(mesh.sites[link.sender].slots, link.slots.receiver)
""",
        OF_SLOTS,
        1,
        "I2 at",
    ),
    Mistake(
        "strand carries more than one slot",
        "relay/links/forwarding.py",
        """\
        return self.slots.of(series.exchange, partition_of(series.lane)) == self.slot
""",
        """\
        return self.slots.of(series.exchange, partition_of(series.lane)) <= self.slot
""",
        OF_SLOTS,
        1,
        "I2 at",
    ),
    Mistake(
        "flow in two slots",
        "relay/node/parts.py",
        """\
                if slots.of(exchange.name, partition_of(exchange.lane)) == self.slot
""",
        """\
                if sum(exchange.name.encode()) % slots.count == self.slot
""",
        OF_SLOTS,
        1,
        "I2 at",
    ),
    Mistake(
        "packer passes over the place of an exchange",
        "relay/node/parts.py",
        """\
                if slots.of(exchange.name, partition_of(exchange.lane)) == self.slot
""",
        """\
                if replace(slots, place={}).of(exchange.name) == self.slot
""",
        OF_SLOTS,
        3,
        "I2 at",
    ),
    Mistake(
        "append out of turn",
        "relay/group/receiver.py",
        """\
            actions = self._advance(followed)
        self._keep_within_bounds(followed)
""",
        """\
            actions = self._advance(followed)
        if followed.next is not None and number in followed.frames:
            actions.append(AppendFrame(followed.stream, number, name, batch))
        self._keep_within_bounds(followed)
""",
        OF_GROUPS,
        1,
        "I5 at",
        NONE_BEFORE,
    ),
    Mistake(
        "HAVE before the confirm",
        "relay/group/group_task.py",
        """\
                appending = self._parts.writer.append_nowait(ours, passed_on)
""",
        """\
                self._parts.on_there(header.name, True)
                appending = self._parts.writer.append_nowait(ours, passed_on)
""",
        "--topology multicast --faults disk,log --every 1 --messages 40 --seconds 20",
        1,
        "I8: the link",
    ),
    Mistake(
        "epoch of a stream used again",
        "relay/group/group_task.py",
        """\
            site_id(parts.own), new_epoch(clock.wall_ms(), parts.random_bytes(_EPOCH_BYTES))
""",
        """\
            site_id(parts.own), new_epoch(0, bytes(_EPOCH_BYTES))
""",
        "--topology multicast --faults kill,no-group --every 2 --messages 20 --seconds 20",
        1,
        "I9: two datagrams",
    ),
    Mistake(
        "no signature check",
        "relay/group/group_task.py",
        """\
            parts.check(header, memoryview(batch))
""",
        "",
        "--topology multicast --faults forger --every 3 --messages 40 --seconds 20",
        1,
        "I3 at",
    ),
    Mistake(
        "flow split between group and link",
        "relay/node/multicast.py",
        """\
            is_own_lane = lanes.get(series.exchange) == base_lane(series.lane)
            return header.kind is not BatchKind.CANARY and is_own_lane
""",
        """\
            is_own_lane = lanes.get(series.exchange) == base_lane(series.lane)
            goes = is_own_lane and header.name.sequence % 3 > 0
            return header.kind is not BatchKind.CANARY and goes
""",
        OF_GROUPS,
        1,
        "I5 at",
        NONE_BEFORE,
    ),
    *DEFERRAL_MISTAKES,
    *PARTITION_MISTAKES,
    *CONTENT_MISTAKES,
)
