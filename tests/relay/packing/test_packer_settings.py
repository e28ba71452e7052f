"""What a packer is told of where its marks go."""

from __future__ import annotations

import pytest

from relay.batches.batch import EVERY_SITE
from relay.packing.packer_settings import PackedExchange, PackerSettings


def settings(*destination_sets: tuple[str, ...]) -> PackerSettings:
    exchanges = tuple(
        PackedExchange(f"x{number}", f"q{number}", destinations=destinations)
        for number, destinations in enumerate(destination_sets)
    )
    return PackerSettings("own", "r1", "relay", exchanges)


@pytest.mark.parametrize(
    ("sets", "marks_go_to"),
    [
        ([("hub",)], ("hub",)),
        ([("hub", "oslo"), ("hub", "cairo")], ("cairo", "hub", "oslo")),
        ([("hub",), EVERY_SITE], EVERY_SITE),
        ([EVERY_SITE], EVERY_SITE),
        ([], ("own",)),
    ],
)
def test_marks_go_to_whom_any_batch_may_be_for(
    sets: list[tuple[str, ...]], marks_go_to: tuple[str, ...]
) -> None:
    assert settings(*sets).mark_destinations == marks_go_to
