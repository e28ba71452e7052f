"""Connects an end of a link where its broker is at present."""

from __future__ import annotations

from collections.abc import Callable

from federation.brokers.addresses import AddressError
from federation.brokers.passwords import PasswordMissing
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable


class PresentConnector:
    """Looks the address up at each connection: a private broker may not have been made yet."""

    def __init__(self, present: Callable[[], LinkConnector]) -> None:
        self._present = present

    async def connect(self) -> LinkEnd:
        """Raises LinkTransportError."""
        try:
            connector = self._present()
        except (AddressError, PasswordMissing) as error:
            raise LinkUnreachable(str(error)) from error
        return await connector.connect()
