"""What a node tells of itself, asked where the mesh file or its folder says."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp

from federation.brokers.passwords import PasswordMissing, resolve_password
from federation.brokers.tls import TlsFilesBroken, client_context
from federation.brokers.tls_refusals import tls_refusal
from federation.mesh import AdminAccess, TlsFiles


class NoReport(Exception):
    """Nobody told; the text says why, and may be empty."""


async def node_report(
    session: aiohttp.ClientSession, url: str, access: AdminAccess, environ: Mapping[str, str]
) -> dict[str, Any]:
    """What /status answers. `environ` is where an `env:` token is looked up. Raises NoReport."""
    context: ssl.SSLContext | None = None
    try:
        if url.startswith("https:"):
            context = client_context(TlsFiles(ca=access.tls.ca))
        headers = {}
        if access.token:
            headers["Authorization"] = f"Bearer {resolve_password(access.token, environ)}"
        # No redirects: a token is for whom it was meant.
        asking = session.get(
            f"{url}/status", headers=headers, ssl=context or True, allow_redirects=False
        )
        async with asking as answer:
            if answer.status == 401:
                raise NoReport(f"it does not take the token in {access.token}")
            report: dict[str, Any] = await answer.json()
            if not {"pid", "sites", "links"} <= report.keys():
                raise NoReport("what answers is no node of this version")
            return report
    except (TlsFilesBroken, PasswordMissing) as error:
        raise NoReport(str(error)) from error
    # A time-out is an OSError.
    except (OSError, ValueError, AttributeError, aiohttp.ClientError) as error:
        why = tls_refusal(error, context, in_login=False) or str(error)
        raise NoReport(why or "no answer in time") from error
