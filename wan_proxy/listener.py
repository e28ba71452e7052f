"""The listening socket of a line, which can leave connects unanswered, as a dead route does."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

BACKLOG = 128


class Listener:
    """Accepts on loopback and hands sockets over. Not started until `start`."""

    def __init__(self, host: str, port: int, on_accepted: Callable[[socket.socket], None]) -> None:
        self._on_accepted = on_accepted
        self._loop = asyncio.get_running_loop()
        self._plug: socket.socket | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._accept_all)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def leave_unanswered(self) -> None:
        """From now on a connect gets no answer at all.

        Linux drops a SYN when the queue of the not yet accepted is full: so the queue is made as
        short as can be, plugged with a connection of our own, and no more accepted.
        """
        if self._plug is not None:
            return
        self._accept_all()
        self._loop.remove_reader(self._socket)
        self._socket.listen(0)
        self._plug = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._plug.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # "in progress": all that is wanted
            self._plug.connect(self._socket.getsockname())

    def answer(self) -> None:
        """Accepts again; connects that were waiting come when their kernels try again."""
        if self._plug is None:
            return
        plug, self._plug = self._plug, None
        self._socket.listen(BACKLOG)
        self._accept_all(skip=plug.getsockname())
        plug.close()
        self._loop.add_reader(self._socket, self._accept_all)

    def close(self) -> None:
        """Stops listening."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._plug is not None:
            self._plug.close()
            self._plug = None

    def _accept_all(self, skip: tuple[str, int] | None = None) -> None:
        while True:
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            if peer == skip:
                accepted.close()
                continue
            accepted.setblocking(False)
            self._on_accepted(accepted)
