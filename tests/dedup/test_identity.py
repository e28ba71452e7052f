"""What makes two messages the same."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.identity import (
    IdentityForm,
    content_hash,
    identity_function,
    scope_prefix,
    text_identity,
    uuid7,
    uuid_of,
)

SAMPLE = uuid.UUID("6fa459ea-ee8a-3ca4-894e-db77e160355e")


def test_a_uuid_is_the_same_in_either_case() -> None:
    assert uuid_of(str(SAMPLE).encode()) == SAMPLE.bytes
    assert uuid_of(str(SAMPLE).upper().encode()) == SAMPLE.bytes


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"order-17",
        SAMPLE.hex.encode(),
        b"{" + str(SAMPLE).encode() + b"}",
        b"6fa459ea-ee8a-3ca4-894e-db77e160355g",
        b"6fa459ea-ee8a-3ca4-894e-db77e16035  ",
        b"6fa459eaxee8a-3ca4-894e-db77e160355e",
        b"6fa459ea-ee8a-3ca4-894e-db77e160355-",
        b"\xff" * 8 + b"-" + b"1111-1111-1111-" + b"1" * 12,
    ],
)
def test_what_is_no_canonical_uuid_is_none(text: bytes | None) -> None:
    assert uuid_of(text) is None


@pytest.mark.parametrize("prefix", [b"urn:uuid:", b"URN:UUID:", b"Urn:uUid:"])
def test_the_urn_of_a_uuid_is_that_uuid(prefix: bytes) -> None:
    assert uuid_of(prefix + str(SAMPLE).encode()) == SAMPLE.bytes
    assert uuid_of(prefix + str(SAMPLE).upper().encode()) == SAMPLE.bytes


@pytest.mark.parametrize(
    "text",
    [
        b"urn:uuid:",
        b"urn:uuid:" + SAMPLE.hex.encode(),
        b"urn:uuid:" + SAMPLE.hex.encode() + b"----",
        b"urn:uuid:{" + SAMPLE.hex.encode() + b"-}",
        b"urn:uuid:" + str(SAMPLE).encode() + b" ",
        b" urn:uuid:" + str(SAMPLE).encode(),
        b"urn:uuid:" + str(SAMPLE).encode() + b"#fragment",
        b"urn:uuid:" + str(SAMPLE)[:-1].encode(),
        b"urn:uuid:" + str(SAMPLE)[:-1].encode() + b"g",
        b"urn:uuid:" + str(SAMPLE)[:-2].encode() + "é".encode(),
        b"urn:uuid:urn:uuid:" + str(SAMPLE).encode(),
        b"urn:guid:" + str(SAMPLE).encode(),
        b"urn:isbn:" + str(SAMPLE).encode(),
        b"urn-uuid-" + str(SAMPLE).encode(),
        b"uuid:" + str(SAMPLE).encode(),
        "ſrn:uuid".encode() + str(SAMPLE).encode(),
        b"\xff" * 9 + str(SAMPLE).encode(),
    ],
)
def test_what_is_no_urn_of_a_canonical_uuid_is_none(text: bytes) -> None:
    assert uuid_of(text) is None


@given(st.uuids() | st.text(max_size=40), st.data())
def test_behind_the_prefix_stands_a_uuid_or_nothing(
    one: uuid.UUID | str, data: st.DataObject
) -> None:
    text = str(one).encode("utf-8", "surrogatepass")
    is_upper = data.draw(st.lists(st.booleans(), min_size=9, max_size=9))
    cases = zip("urn:uuid:", is_upper, strict=True)
    prefix = "".join(letter.upper() if upper else letter for letter, upper in cases).encode()
    assert uuid_of(prefix + text) == uuid_of(text)
    assert not isinstance(one, uuid.UUID) or uuid_of(prefix + text) == one.bytes


def test_each_form_takes_its_own_source() -> None:
    message_id, header, content = str(SAMPLE).encode(), b"h-1", b"c" * 16

    def identity(form: IdentityForm) -> bytes | None:
        return identity_function(form)(message_id, header, content)

    assert identity(IdentityForm.UUID) == SAMPLE.bytes
    assert identity(IdentityForm.MESSAGE_ID) == text_identity(message_id)
    assert identity(IdentityForm.HEADER) == text_identity(b"h-1")
    assert identity(IdentityForm.CONTENT) == content
    assert identity(IdentityForm.NONE) is None
    assert len({identity(form) for form in IdentityForm}) == len(IdentityForm)


def test_a_message_without_the_source_has_no_identity() -> None:
    for form in (IdentityForm.UUID, IdentityForm.MESSAGE_ID, IdentityForm.HEADER):
        assert identity_function(form)(None, None, b"c" * 16) is None
        assert identity_function(form)(b"", b"", b"c" * 16) is None


def test_content_is_key_body_type_and_encoding_and_nothing_runs_together() -> None:
    base = content_hash(b"k", b"body", b"text/plain", b"gzip")
    assert content_hash(b"k", b"body", b"text/plain", b"gzip") == base
    others = [
        content_hash(b"kb", b"ody", b"text/plain", b"gzip"),
        content_hash(b"k", b"body2", b"text/plain", b"gzip"),
        content_hash(b"k", b"body", b"text/plai", b"ngzip"),
        content_hash(b"k", b"body", b"text/plain", None),
        content_hash(b"k", b"", b"text/plain", b"gzip"),
    ]
    assert len({base, *others}) == 6
    assert content_hash(b"k", b"", None, None) == content_hash(b"k", b"", b"", b"")


def test_content_of_a_big_body_is_hashed_alike() -> None:
    limit = 64 * 1024
    sizes = {content_hash(b"k", b"x" * size, None, None) for size in range(limit - 1, limit + 3)}
    assert len(sizes) == 4


def test_a_uuid7_is_one_and_begins_with_its_time() -> None:
    made = uuid.UUID(bytes=uuid7(1_700_000_000_123, b"\xff" * 10))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123
    assert uuid7(1, b"\x00" * 10) < uuid7(2, b"\x00" * 10)
    assert uuid7(1, b"\x00" * 10) != uuid7(1, b"\x00" * 9 + b"\x01")
    with pytest.raises(ValueError, match="10 random bytes"):
        uuid7(1, b"short")


def test_a_uuid7_uses_all_of_its_chance() -> None:
    seen = {uuid7(1, (1 << bit).to_bytes(10)) for bit in range(80)}
    assert len(seen) == 75  # 74 random bits, and the 6 that are not used


def test_scopes_keep_identities_apart() -> None:
    prefixes = {
        scope_prefix("orders", None),
        scope_prefix("prices", None),
        scope_prefix("orders", "paris"),
        scope_prefix("orders", "tokyo"),
        scope_prefix("orders@paris", None),
        scope_prefix("orders", ""),
    }
    assert len(prefixes) == 6
