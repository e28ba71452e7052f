"""Conditions that can be, and those that say why they cannot."""

from typing import Any

import pytest

from wan_proxy import ISDN_64K, PRESETS, ConditionError, DirectionCondition, LineCondition


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"delay_ms": -1}, "delay_ms"),
        ({"jitter_ms": -1}, "jitter_ms"),
        ({"rate_bits_per_s": 0}, "rate_bits_per_s"),
        ({"queue_bytes": 0}, "queue_bytes"),
        ({"window_bytes": 100}, "window_bytes"),
        ({"late_fraction": 1.0}, "late_fraction"),
        ({"late_by_ms": 0}, "late_by_ms"),
    ],
)
def test_an_impossible_setting_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConditionError) as raised:
        DirectionCondition(**settings)
    assert raised.value.field == field
    assert raised.value.advice


def test_late_segments_without_any_lateness_are_refused() -> None:
    with pytest.raises(ConditionError, match="does nothing"):
        LineCondition.both_ways(late_fraction=0.1)
    LineCondition.both_ways(late_fraction=0.1, late_by_ms=5)


def test_the_queue_is_one_second_of_the_rate_or_the_window() -> None:
    assert DirectionCondition(rate_bits_per_s=2e6).queue_limit_bytes == 250_000
    assert DirectionCondition().queue_limit_bytes == 4 * 1024 * 1024
    assert DirectionCondition(queue_bytes=99).queue_limit_bytes == 99


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(name: str) -> None:
    preset = PRESETS[name]
    assert LineCondition.from_json(preset.to_json()) == preset
    assert LineCondition.from_json(name) == preset


def test_one_object_means_both_directions() -> None:
    assert LineCondition.from_json({"delay_ms": 20, "rate_bits_per_s": 64e3}) == ISDN_64K
    half = LineCondition.from_json({"inward": {"delay_ms": 3}})
    assert (half.outward.delay_ms, half.inward.delay_ms) == (0, 3)


@pytest.mark.parametrize(
    "value", ["NO_SUCH", 5, {"delay": 3}, {"delay_ms": "3"}, {"outward": 1}, {"inward": {}, "x": 1}]
)
def test_what_cannot_be_read_says_what_to_give(value: object) -> None:
    with pytest.raises(ConditionError, match=r"use|give|only"):
        LineCondition.from_json(value)
