"""Preparation of the operator's own brokers by `isthmus up`: `apply` where the mesh file has
`management:`, else advice to run it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from aio_pika.exceptions import AMQPException

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.amqp_declare import declaring
from federation.brokers.credentials import PasswordMissing
from federation.names import Names
from isthmus.options import DEFAULT_STATE
from isthmus.site_apply import apply_sites, lines

AGAIN_AFTER_S = (2.0, 30.0)
"""First and longest wait (s): a broker that starts together with `up` takes some seconds."""
Say = Callable[[str], None]


@dataclass(slots=True)
class OwnBrokers:
    """Own brokers of a mesh. `file` is the mesh file, for commands in advice; `say` receives each
    advice once.
    """

    file: Path
    book: AddressBook
    state: Path
    say: Say
    _given: set[str] = field(default_factory=set)

    async def prepare(self) -> None:
        """Work until every own broker has what the mesh needs or a person has to act."""
        sites = {
            name: site.broker
            for name, site in self.book.mesh.sites.items()
            if site.broker is not None
        }
        by_us = [name for name, broker in sites.items() if broker.managements]
        by_hand = [name for name in sites if name not in by_us]
        await asyncio.gather(self._apply(by_us), *map(self._look, by_hand))

    async def _apply(self, sites: Sequence[str]) -> None:
        waits = _waits()
        while sites:
            reports = await apply_sites(self.book, sites, self.state)
            for report in reports:
                if report.faults or report.changes or report.unchecked:
                    self._advise_once("\n".join(lines(report)))
            sites = [
                report.site
                for report in reports
                if any(item.kind == "broker" for item in report.faults)
            ]
            if sites:
                await asyncio.sleep(next(waits))

    async def _look(self, site: str) -> None:
        """Check if the mesh was applied by hand: without the log no node begins."""
        log, waits = Names(self.book.mesh.name).log, _waits()
        while True:
            try:
                async with declaring(self.book.administrator(site)) as declarer:
                    if await declarer.waiting(log) is not None:
                        return
            except (AddressError, PasswordMissing) as error:
                self._advise_once(f"{site}: {error}")
                return
            except (AMQPException, OSError) as error:
                why = str(error) or "no answer in time"
                self._advise_once(f"{site}: its broker cannot be asked: {why}")
                await asyncio.sleep(next(waits))
            else:
                self._advise_once(
                    f"{site}: its broker has not got what the mesh needs, and the mesh file has "
                    f"no `management:` for it: run `{self._command(site)}`, which says what is "
                    "left to do by hand"
                )
                return

    def _command(self, site: str) -> str:
        command = f"isthmus apply {self.file} --site {site}"
        return command if self.state == DEFAULT_STATE else f"{command} --state {self.state}"

    def _advise_once(self, text: str) -> None:
        if text not in self._given:
            self._given.add(text)
            self.say(text)


def _waits() -> Iterator[float]:
    first, most = AGAIN_AFTER_S
    for number in count():
        yield min(most, first * 2.0 ** min(number, 16))
