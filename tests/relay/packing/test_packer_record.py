"""What a packer leaves to its successor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.packing.packer_record import Acked, BadPackerRecord, PackerRecord


def test_a_record_survives_being_written() -> None:
    record = PackerRecord(
        b"incarna1",
        7,
        "boot",
        b"log id",
        12,
        5,
        {"orders": Acked(b"incarna0", 3), "é": Acked(b"x", 0)},
        frozenset({"orders"}),
    )
    assert PackerRecord.decode(record.encode()) == record


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":3}', b"\xff\xfe"])
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(BadPackerRecord):
        PackerRecord.decode(data)


def test_a_record_of_the_version_before_is_read_and_its_acknowledgements_not_trusted() -> None:
    record = PackerRecord(b"incarna1", 7, "boot", b"log id", 12, 5)
    before = record.encode().replace(b'"version":2', b'"version":1')
    assert PackerRecord.decode(before) == replace(record, boot="")
