"""The key that a site's node signs with, as its mesh file says."""

from __future__ import annotations

from federation.brokers.addresses import AddressBook
from federation.mesh import SigningRule
from federation.signing_keys import (
    PrivateKeyUnusable,
    key_id,
    load_private_key,
    parse_public_key,
    public_key_text,
)
from relay.batches.signature import Signer


def signer_of(book: AddressBook, site: str) -> Signer | None:
    """None where the site signs nothing. Raises PrivateKeyUnusable, also for a key that others
    would not know: what it signed, nobody would take.
    """
    mesh = book.mesh
    here = mesh.sites[site]
    if mesh.signing is SigningRule.NONE or not here.public_keys:
        return None
    private = load_private_key(here.private_key, book.environ)
    signer = Signer.of(mesh.name, private)
    if signer.id not in {key_id(parse_public_key(one)) for one in here.public_keys}:
        raise PrivateKeyUnusable(
            here.private_key,
            f"it is another one than those that the mesh file has of {site}: its public key is "
            f"{public_key_text(private.public_key())}",
        )
    return signer
