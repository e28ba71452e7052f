"""Figures of the last hour from a Prometheus that scrapes the nodes (`isthmus_link_*`,
`isthmus_site_*`).
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import aiohttp

from isthmus.page.history import EVERY_S, POINTS

WITHIN_S = 5.0
# Rates are over three minutes, which have two samples of a Prometheus that scrapes once a minute.
_LINK_QUERIES = {
    "messages_s": "sum(rate(isthmus_link_acked_messages_total{%s}[3m]))",
    "bytes_s": "sum(rate(isthmus_link_acked_bytes_total{%s}[3m]))",
    "lag_s": "max(isthmus_link_lag_seconds{%s})",
    "lag_messages": "max(isthmus_link_lag_messages{%s})",
}
_SITE_QUERIES = {
    "delivered_s": "sum(rate(isthmus_site_delivered_messages_total{%s}[3m]))",
    "egress": "max(isthmus_site_egress_messages{%s})",
    "dead_letters": "max(isthmus_site_dead_letters_waiting{%s})",
    "quarantine": "max(isthmus_site_quarantine_waiting{%s})",
}


class PrometheusAway(Exception):
    """Prometheus does not answer, or not as one; the text gives the reason."""


class Prometheus:
    """Client of a Prometheus at `url`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url.rstrip("/")
        self._session = session

    async def hour(self, kind: str, labels: dict[str, str], now: float) -> dict[str, Any]:
        """Return the samples of a site or link with these labels, up to `now` (seconds since 1970),
        as `Hour.of` does. Raises PrometheusAway.
        """
        queries = _LINK_QUERIES if kind == "links" else _SITE_QUERIES
        chosen = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
        end = now - now % EVERY_S
        seconds = [end - EVERY_S * (POINTS - 1 - number) for number in range(POINTS)]
        series = await asyncio.gather(
            *(self._range(query % chosen, seconds) for query in queries.values())
        )
        return {"seconds": seconds, **dict(zip(queries, series, strict=True))}

    async def _range(self, query: str, seconds: list[float]) -> list[float | None]:
        request: dict[str, str | float] = {
            "query": query,
            "start": seconds[0],
            "end": seconds[-1],
            "step": EVERY_S,
        }
        try:
            async with self._session.get(
                f"{self._url}/api/v1/query_range",
                params=request,
                timeout=aiohttp.ClientTimeout(total=WITHIN_S),
                allow_redirects=False,
            ) as answer:
                content = await answer.json(content_type=None)
            if content["status"] != "success":
                raise PrometheusAway(f"Prometheus at {self._url}: {content.get('error')}")
            found = content["data"]["result"]
            values = dict(found[0]["values"]) if found else {}
            return [_finite(values.get(at)) for at in seconds]
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
            why = str(error) or "no answer in time"
            raise PrometheusAway(f"Prometheus at {self._url} does not answer: {why}") from None


def _finite(value: str | None) -> float | None:
    """Read a value of Prometheus; None for what JSON cannot carry."""
    number = float("nan") if value is None else float(value)
    return number if math.isfinite(number) else None
