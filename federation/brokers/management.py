"""RabbitMQ's management HTTP API, as far as `apply` needs it.

ManagementError
+- ManagementAway      no answer, or not in time
+- ManagementRefused   the API refuses: wrong password, missing tag or permission
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from aiohttp_retry import ExponentialRetry, RetryClient
from yarl import URL

from federation.brokers.address_ring import AddressRing
from federation.brokers.addresses import ManagementAddress
from federation.brokers.tls_refusals import tls_refusal

T = TypeVar("T")
_BROKEN_FOR_A_MOMENT = ExponentialRetry(attempts=5, start_timeout=0.1)
"""Retries of a GET or PUT after a server error: RabbitMQ answers 500 while the processes that
collect statistics for a new queue or virtual host start. Gives up after 3 s.
"""


class ManagementError(Exception):
    """The management API cannot be used; `url` is its base."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")


class ManagementAway(ManagementError):
    """No answer: is the plugin rabbitmq_management on, and the address right?"""


class ManagementRefused(ManagementError):
    """A refusal: the user needs the tag that the reason names (`administrator` for users,
    `policymaker` for policies) and permissions in the virtual host.
    """


class ManagementApi:
    """API of one broker (of a cluster, whichever node answers), an asynchronous context. Paths are
    given in parts, names unquoted. The constructor may raise TlsUnusable.
    """

    def __init__(self, address: ManagementAddress, *, timeout_s: float = 15.0) -> None:
        self.address = address
        self.vhost = address.vhost
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        self._context = address.ssl_context
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Basic {login}"},
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            connector=aiohttp.TCPConnector(ssl=self._context or True),
        )
        self._patient = RetryClient(self._session, retry_options=_BROKEN_FOR_A_MOMENT)
        self._ring = AddressRing[str]()

    async def __aenter__(self) -> ManagementApi:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, *path: str, **query: str) -> Any | None:
        """Return the JSON at a path, or None if nothing is there. Raises ManagementError."""
        return await self._ask("GET", path, query=query)

    async def put(self, *path: str, body: object) -> None:
        """Create or replace the object at a path. Raises ManagementError."""
        await self._ask("PUT", path, body=body)

    async def date(self) -> datetime:
        """Return the broker's time, to the second. Raises ManagementError."""
        return await self._anywhere(self._date)

    async def _date(self, base: str) -> datetime:
        try:
            async with self._session.get(f"{base}/api/whoami") as answer:
                return parsedate_to_datetime(answer.headers.get("Date", ""))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._away(base, error) from error
        except ValueError as error:
            raise ManagementAway(base, "it does not say what time it is") from error

    async def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: dict[str, str] | None = None,
        body: object = None,
    ) -> Any | None:
        # Quoted here: a virtual host called / must stay one part of the path.
        quoted = "/".join(quote(part, safe="") for part in path)

        async def ask(base: str) -> Any | None:
            url = URL(f"{base}/api/{quoted}", encoded=True)
            return await self._ask_at(base, method, url.with_query(query) if query else url, body)

        return await self._anywhere(ask)

    async def _anywhere(self, ask: Callable[[str], Awaitable[T]]) -> T:
        """Return the first node's answer, beginning with the node that answered last."""
        away: list[ManagementAway] = []
        for base in self._ring.order(self.address.urls):
            try:
                answer = await ask(base)
            except ManagementAway as error:
                away.append(error)
            else:
                self._ring.worked(base)
                return answer
        if len(away) == 1:
            raise away[0]
        raise ManagementAway(self.address.url, "; ".join(map(str, away)))

    async def _ask_at(self, base: str, method: str, url: URL, body: object) -> Any | None:
        try:
            async with self._patient.request(method, url, json=body) as answer:
                text = await answer.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._away(base, error) from error
        if answer.status == 404 and method == "GET":
            return None
        if answer.status >= 400:
            raise ManagementRefused(base, f"{answer.status} {_reason(text)}".strip())
        return json.loads(text) if text else None

    def _away(self, base: str, error: Exception) -> ManagementAway:
        why = tls_refusal(error, self._context) or str(error) or "no answer in time"
        return ManagementAway(base, why)


def _reason(text: str) -> str:
    try:
        answer = json.loads(text)
    except ValueError:
        return text[:200]
    return (
        str(answer.get("reason") or answer.get("error") or "") if isinstance(answer, dict) else ""
    )
