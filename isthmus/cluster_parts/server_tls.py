"""TLS of the private servers of a site's nodes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of a server: `pair` has its private key (PKCS 8) and certificate, `ca` whom it
    trusts. `probe` connects to it, to see whether it serves.
    """

    pair: Path
    ca: Path
    probe: ssl.SSLContext
