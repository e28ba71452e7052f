"""One proxied connection: its two ends, two streams, opening and closing."""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Literal

from wan_proxy.direction import Direction
from wan_proxy.end import End
from wan_proxy.stream import Stream

Side = Literal["client", "target"]


class ProxiedConnection:
    """Connection from an accepted client to the line's target.

    The connection to the target is opened only when the line passes both ways, since a handshake
    needs both; until then the client is held. `is_forgotten` marks a connection that will never
    pass anything again.
    """

    def __init__(
        self,
        outward: Direction,
        inward: Direction,
        rng: random.Random,
        on_over: Callable[["ProxiedConnection"], None],
    ) -> None:
        self.outward = Stream(outward, random.Random(rng.random()), self._end_at_target, self.reset)
        self.inward = Stream(inward, random.Random(rng.random()), self._end_at_client, self.reset)
        self.client = End(self.outward, self.inward, self._end_lost)
        self.target = End(self.inward, self.outward, self._end_lost)
        self.is_forgotten = False
        self.is_over = False
        self._was_reset = False
        self._on_over = on_over
        self._opening: asyncio.Task[bool] | None = None

    async def open(
        self, accepted: socket.socket, address: tuple[str, int], passable: asyncio.Event
    ) -> bool:
        """Take over the client's socket, wait until the line passes, and connect to the target.

        Return False if the target refused: the client then gets an RST.
        """
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.client, accepted)
        if self._was_reset:  # before the connection began
            self.client.reset()
            return True
        self.outward.source = self.client
        self.inward.sink = self.client
        self.outward.limit_kernel_buffer()
        self.outward.regulate()
        if self.is_forgotten:
            return True
        self._opening = asyncio.create_task(self._reach(address, passable))
        # Cancelled means reset or forgotten meanwhile, before the target had answered.
        await asyncio.wait([self._opening])
        return self._opening.cancelled() or self._opening.result()

    async def _reach(self, address: tuple[str, int], passable: asyncio.Event) -> bool:
        await passable.wait()
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.target, *address)
        except asyncio.CancelledError:
            self.target.given_up()
            raise
        except OSError:
            self.reset()
            return False
        self.inward.source = self.target
        self.outward.sink = self.target
        self.inward.limit_kernel_buffer()
        self.outward.sink_ready()
        self.inward.regulate()
        return True

    def reset(self) -> None:
        """Send RST to both ends at once; bytes in flight are lost."""
        self._was_reset = True
        self._stop_opening()
        self.client.reset()
        self.target.reset()
        self._end_lost()

    def finish(self) -> None:
        """Send FIN to both ends; bytes in flight and later ones are lost."""
        self._stop_opening()
        for stream, end in ((self.outward, self.client), (self.inward, self.target)):
            stream.swallow()
            end.write_end()
            end.close_when_both_ended()

    def forget(self, *streams: Stream) -> None:
        """Turn the streams into black holes, without a sign to either end."""
        self.is_forgotten = True
        self._stop_opening()
        for stream in streams:
            stream.swallow()

    def half_open(self, kept: Side) -> None:
        """Send RST to one end; the kept end sees an open connection, and its bytes vanish."""
        self.forget(self.outward, self.inward)
        (self.target if kept == "client" else self.client).reset()

    def _stop_opening(self) -> None:
        if self._opening is not None and self._opening is not asyncio.current_task():
            self._opening.cancel()

    def _end_at_target(self) -> None:
        self.target.write_end()
        self.target.close_when_both_ended()

    def _end_at_client(self) -> None:
        self.client.write_end()
        self.client.close_when_both_ended()

    def _end_lost(self) -> None:
        if self.is_over or self.client.is_open or self.target.is_open:
            return
        self.is_over = True
        self._stop_opening()
        self.outward.close()
        self.inward.close()
        self._on_over(self)
