"""`python -m benchmarks.multicast.member_process SETTINGS`: one member of a group, without a node.

The member has the machines and the carrier of a node, and neither a log nor links: what the group
has not brought within the time of a link counts as brought by links, and is told when all is over.
Prints `ready`, and at its end a JSON object.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass

from relay.group.datagram import (
    EPOCH_BYTES,
    OVERHEAD,
    BadDatagram,
    DatagramOpener,
    DatagramSealer,
    GroupStream,
    new_epoch,
    site_id,
)
from relay.group.member import GroupMember
from relay.group.receiver import AppendFrame
from relay.group.settings import GroupSettings
from relay.group.udp_carrier import UdpCarrier

GROUP, PORT = "239.192.7.3", 7402
_MTU = 1400
_LINK_S = 1.5
"""Time after which a link has brought a batch: what a sender holds back, and the way."""
_KEY = hashlib.sha256(b"of a measurement").digest()
_NAME_BYTES = 40
"""Bytes of a batch's name in a node, nearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Settings of one member: number `site` of `sites`, the first of which publishes `count`
    batches of `size` bytes, `per_second`, from the time `began` on.
    """

    site: int
    sites: int
    address: str
    rate: float
    count: int
    size: int
    per_second: float
    began: float
    """Time of the first batch, by the machine's monotonic clock."""
    settle_s: float

    def due(self, number: int) -> float:
        """Return the time of a batch."""
        return self.began + number / self.per_second

    @property
    def ends(self) -> float:
        """Time at which the measurement is over."""
        return self.due(self.count) + self.settle_s


def batch_name(number: int) -> str:
    """Return the name of a batch."""
    return f"{number:0{_NAME_BYTES}d}"


class LinkedLog:
    """Log of a member: what the group has brought, and what links would have by now."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.delays_ms: dict[int, float] = {}
        """Delays of the batches that the group has brought, by number."""

    def accept(self, publisher: bytes, batch: bytes) -> str | None:
        """Return the name of a batch, which stands at its beginning."""
        return batch[:_NAME_BYTES].decode()

    def has(self, name: str) -> bool:
        """Return True if the group has brought a batch, or a link would have."""
        number = int(name)
        return number in self.delays_ms or (time.monotonic() > self._settings.due(number) + _LINK_S)

    def append(self, appends: list[AppendFrame]) -> None:
        """Append what the group has brought."""
        for append in appends:
            number = int(append.name)
            delay_ms = (time.monotonic() - self._settings.due(number)) * 1e3
            self.delays_ms.setdefault(number, delay_ms)


class AloneMember:
    """Driver of one member, as a node's task is."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.log = LinkedLog(settings)
        sites = [site_id(str(number)) for number in range(settings.sites)]
        now = time.monotonic()
        own = GroupStream(
            sites[settings.site], new_epoch(int(time.time() * 1e3), os.urandom(EPOCH_BYTES // 2))
        )
        self._member = GroupMember(
            own=own,
            replayers=sites[1:3],
            settings=GroupSettings(rate=settings.rate, piece_bytes=_MTU - OVERHEAD),
            log=self.log,
            random=random.random,
            before="",
            now=now,
            counters=Counter(),
        )
        self._sealer = DatagramSealer(_KEY, _KEY, own)
        self._opener = DatagramOpener(_KEY, [_KEY], sites)
        self._wake = asyncio.Event()

    async def run(self) -> dict[str, object]:
        """Be a member until the measurement is over; return what has come."""
        settings = self._settings
        carrier = UdpCarrier(GROUP, PORT, interface=settings.address)
        carrier.listen(self._on_datagram)
        print("ready", flush=True)
        publishing = asyncio.create_task(self._publish()) if settings.site == 0 else None
        while time.monotonic() < settings.ends:
            self._wake.clear()
            now = time.monotonic()
            turn = self._member.tick(now, int(time.time() * 1e3))
            self.log.append(turn.append)
            for message in turn.send:
                carrier.send(self._sealer.seal(message))
            try:
                async with asyncio.timeout(max(0.0, self._member.wakeup(now) - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                continue
        if publishing is not None:
            await publishing
        return {"delays_ms": list(self.log.delays_ms.values())}

    async def _publish(self) -> None:
        settings = self._settings
        for number in range(settings.count):
            await asyncio.sleep(max(0.0, settings.due(number) - time.monotonic()))
            name = batch_name(number)
            batch = name.encode() + os.urandom(settings.size - _NAME_BYTES)
            self._member.publish(name, batch)
            self._wake.set()

    def _on_datagram(self, datagram: bytes) -> None:
        try:
            received = self._opener.open(datagram)
        except BadDatagram:
            return
        before = self._member.wakeup(time.monotonic())
        self.log.append(self._member.received(received, time.monotonic()))
        if self._member.wakeup(time.monotonic()) < before:
            self._wake.set()


def as_words(settings: MemberSettings) -> str:
    """Return settings as the process takes them."""
    return json.dumps(asdict(settings))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(AloneMember(MemberSettings(**json.loads(sys.argv[1]))).run())))
