"""Signed batches: what is caught, what goes through, and what only a newer mesh file can say."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest

from federation.mesh import Mesh
from relay.batches.batch import BatchHeader, BatchKind, HeaderField
from relay.batches.format import (
    BadBatch,
    UnknownFormat,
    append_to_path,
    decode_entries,
    read_header,
    verify_digest,
)
from relay.batches.signature import (
    SIGNATURE_FIELD,
    Authenticity,
    NotAuthentic,
    OriginUnknown,
    authenticity,
)
from tests.federation.meshes import mesh_of
from tests.signed_batches import MESH, public_key, resealed, signed_batch, signer

SITES = ("paris", "tokyo", "oslo")
TEXT = """\
mesh: acme
batch_format: 2
signing: ed25519
topology: complete
exchanges:
  - {name: orders}
  - {name: prices, from: [paris]}
sites:
"""


def mesh(text: str = TEXT, **keys: tuple[str, ...]) -> Mesh:
    """Of the three sites; `keys`: whose public keys a site has, its own unless told."""
    for site in SITES:
        written = ", ".join(map(public_key, keys.get(site, (site,))))
        text += f"  {site}: {{public_key: [{written}], private_key: env:KEY}}\n"
    return mesh_of(text)


CHECK = authenticity(mesh())


def check(data: bytes, by: Authenticity = CHECK) -> None:
    """All that a site asks of a batch."""
    header = read_header(data)
    verify_digest(data)
    by.check(header, data)


def test_what_its_origin_signed_is_taken_also_after_other_sites_and_can_be_read() -> None:
    header, data = signed_batch()
    check(data)
    further = append_to_path(append_to_path(data, "tokyo"), "oslo")
    check(further)
    assert read_header(further) == replace(header, path=("paris", "tokyo", "oslo"))
    assert len(decode_entries(further)) == 2


def _with_right_digest(data: bytes) -> bytes:
    start = 10 + int.from_bytes(data[4:6], "big")
    digest = blake2b(data[:4], digest_size=16)
    digest.update(data[start + 16 :])
    return data[:start] + digest.digest() + data[start + 16 :]


def test_a_tampered_byte_anywhere_is_caught_also_by_who_puts_the_digest_right() -> None:
    _, data = signed_batch()
    digest_at = 10 + int.from_bytes(data[4:6], "big")
    for place in {*range(len(data))} - {*range(digest_at, digest_at + 16)}:
        for flip in (1, 0x80):
            tampered = bytearray(data)
            tampered[place] ^= flip
            with pytest.raises((BadBatch, UnknownFormat, OriginUnknown)):
                check(_with_right_digest(bytes(tampered)))
    assert _with_right_digest(data) == data


@pytest.mark.parametrize(
    "otherwise",
    [
        {"kind": BatchKind.REPAIR},
        {"revision": "r2"},
        {"total_messages": 7},
        {"first_published_ms": 8},
        {"incarnation_sequence": 1},
    ],
)
def test_no_word_of_a_header_can_be_changed(otherwise: dict[str, object]) -> None:
    header, _ = signed_batch()
    check(resealed(header))
    with pytest.raises(NotAuthentic, match="not that of 'paris'"):
        check(resealed(header, **otherwise))


def test_another_site_cannot_sign_in_its_name() -> None:
    _, data = signed_batch(by=signer("tokyo"))
    with pytest.raises(OriginUnknown, match="'paris' signs with the key"):
        check(data)


def test_the_same_sites_of_another_mesh_are_others() -> None:
    _, data = signed_batch(by=signer("paris", "another"))
    with pytest.raises(NotAuthentic):
        check(data)


def test_what_is_not_signed_is_refused_unless_the_file_accepts_it() -> None:
    _, data = signed_batch(signs=False)
    with pytest.raises(NotAuthentic, match="has not signed it"):
        check(data)
    lax = authenticity(mesh(TEXT.replace("signing: ed25519", "signing: ed25519\nunsigned: accept")))
    check(data, lax)
    header, _ = signed_batch()
    with pytest.raises(NotAuthentic):
        check(resealed(header, revision="r2"), lax)


def test_a_mesh_that_does_not_sign_asks_nothing() -> None:
    unsigned = mesh_of("mesh: acme\ntopology: complete\nsites: {paris: {}, tokyo: {}, oslo: {}}\n")
    for signs in (True, False):
        check(signed_batch(signs=signs, by=signer("tokyo"))[1], authenticity(unsigned))


def _fields(header: BatchHeader) -> dict[str, tuple[HeaderField, ...]]:
    (signature,) = header.fields
    other = HeaderField(7, b"other")
    return {
        "cut off": (signature._replace(value=signature.value[:-1]),),
        "too long": (signature._replace(value=signature.value + b"\0"),),
        "empty": (signature._replace(value=b""),),
        "not the last": (signature, other),
        "there twice": (signature, signature),
    }


@pytest.mark.parametrize("how", _fields(signed_batch()[0]))
def test_a_signature_has_one_place_and_one_size(how: str) -> None:
    header, _ = signed_batch()
    with pytest.raises(NotAuthentic, match="another place or size"):
        check(resealed(header, fields=_fields(header)[how]))


def test_a_field_before_the_signature_is_signed_too() -> None:
    header, _ = signed_batch()
    more = (HeaderField(7, b"added"), *header.fields)
    assert more[-1].number == SIGNATURE_FIELD
    with pytest.raises(NotAuthentic):
        check(resealed(header, fields=more))


def test_two_keys_are_valid_while_a_site_goes_from_one_to_the_other() -> None:
    both = authenticity(mesh(paris=("paris", "paris-2")))
    for key in ("paris", "paris-2"):
        check(signed_batch(by=signer(key))[1], both)
    after = authenticity(mesh(paris=("paris-2",)))
    check(signed_batch(by=signer("paris-2"))[1], after)
    with pytest.raises(OriginUnknown, match="does not have"):
        check(signed_batch()[1], after)
    # What it had signed before the file changed may still be on its way.
    check(signed_batch()[1], authenticity(mesh(paris=("paris-2",)), [mesh()]))


def test_a_revoked_key_is_believed_nowhere_not_even_for_what_was_on_its_way() -> None:
    revoked = TEXT.replace(
        "signing: ed25519", f"signing: ed25519\nrevoked_keys: {public_key('paris')}"
    )
    after = authenticity(mesh(revoked, paris=("paris-2",)), [mesh()])
    check(signed_batch(by=signer("paris-2"))[1], after)
    with pytest.raises(NotAuthentic, match="of 'paris' is revoked"):
        check(signed_batch()[1], after)


def test_what_a_site_had_sent_before_it_left_is_still_taken() -> None:
    _, data = signed_batch(origin="lima")
    before = mesh_of(
        TEXT + f"  paris: {{public_key: {public_key('paris')}, private_key: env:K}}\n"
        f"  lima: {{public_key: {public_key('lima')}, private_key: env:K}}\n"
    )
    check(data, authenticity(mesh(), [before]))


def test_a_site_that_the_file_does_not_have_cannot_be_judged() -> None:
    _, data = signed_batch(origin="lima")
    with pytest.raises(OriginUnknown, match="'lima' is no site of this mesh file"):
        check(data)


def test_a_site_may_send_only_to_exchanges_whose_origin_it_is() -> None:
    check(signed_batch(exchange="prices")[1])
    _, data = signed_batch(origin="tokyo", exchange="prices")
    with pytest.raises(OriginUnknown, match="may send to 'prices'"):
        check(data)
    # What an earlier file allowed may still be on its way.
    former = mesh(TEXT.replace("from: [paris]", "from: [tokyo]"))
    check(data, authenticity(mesh(), [former]))
    with pytest.raises(OriginUnknown, match="may send to 'new' by this mesh file"):
        check(signed_batch(origin="tokyo", exchange="new")[1])


def test_only_some_sites_may_send_again_what_others_published() -> None:
    _, data = signed_batch(origin="tokyo", exchange="prices", kind=BatchKind.REPAIR)
    with pytest.raises(OriginUnknown, match="`repairs_from` of this mesh file lacks 'tokyo'"):
        check(data)
    may = mesh(TEXT.replace("signing: ed25519", "signing: ed25519\nrepairs_from: [tokyo]"))
    check(data, authenticity(may))
    check(data, authenticity(mesh(), [may]))
    with pytest.raises(OriginUnknown):
        check(signed_batch(kind=BatchKind.REPAIR)[1], authenticity(may))
    # What a file allowed in whose time nothing was signed, it allowed to everybody.
    unsigned = mesh_of(
        "mesh: acme\ntopology: complete\nexchanges: [{name: prices}]\n"
        "sites: {paris: {}, tokyo: {}, oslo: {}}\n"
    )
    with pytest.raises(OriginUnknown):
        check(data, authenticity(mesh(), [unsigned]))


@pytest.mark.parametrize("kind", [BatchKind.MARK, BatchKind.CANARY])
def test_batches_without_exchange_are_signed_like_any(kind: BatchKind) -> None:
    check(signed_batch(kind=kind, exchange="")[1])
    with pytest.raises(NotAuthentic):
        check(signed_batch(kind=kind, exchange="", signs=False)[1])


def test_no_signature_without_the_format_that_has_room_for_it() -> None:
    header, _ = signed_batch()
    with pytest.raises(ValueError, match="format 1"):
        resealed(header, format=1)


def test_signers_are_equal_by_their_key_and_do_not_show_it() -> None:
    assert signer("paris") == signer("paris") != signer("tokyo")
    assert "key" not in repr(signer("paris")).lower()
    assert signer("paris").mesh == MESH
