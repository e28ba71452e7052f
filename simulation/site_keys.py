"""Keys of simulated sites, and of their group: the same in each world."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.mesh import Mesh
from federation.signing_keys import private_key_pem, public_key_text

_GROUP_KEY_NAME = "GROUP_KEY"
GROUP_KEY_AT = f"env:{_GROUP_KEY_NAME}"
"""Place of the group's key, as a mesh file names it."""
GROUP_KEY = hashlib.sha256(b"simulated group").digest()


def public_key_of(site: str) -> str:
    """Return the public key of a site, as a mesh file has it."""
    return public_key_text(private_key_of(site).public_key())


@cache
def private_key_of(site: str) -> Ed25519PrivateKey:
    """Return the private key of a site."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(site.encode()).digest())


def private_key_at(site: str) -> str:
    """Return the place of a site's private key, as a mesh file names it."""
    return f"env:{_name(site)}"


def environ_of(mesh: Mesh) -> dict[str, str]:
    """Return the environment of the nodes of a mesh: its keys; none where no site signs."""
    signing = [name for name, site in mesh.sites.items() if site.public_keys]
    if not signing:
        return {}
    keys = {_name(site): private_key_pem(private_key_of(site)).decode() for site in signing}
    return keys | {_GROUP_KEY_NAME: base64.b64encode(GROUP_KEY).decode()}


def _name(site: str) -> str:
    return f"KEY_OF_{site.upper()}"
