"""Text of a report's metrics: types, labels, units, states, and the former names beside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.exposition import metrics_text
from tests.relay.admin.metrics.reports import REPORT

Labels = frozenset[tuple[str, str]]


def samples(text: bytes) -> dict[tuple[str, Labels], float]:
    """Samples by name and labels; fails at a series that stands twice."""
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def lines(text: bytes) -> Iterator[str]:
    return (line for line in text.decode().splitlines() if not line.startswith("#"))


NEW = metrics_text(REPORT, with_old_names=False)
BOTH = metrics_text(REPORT, with_old_names=True)


@pytest.mark.parametrize(
    "line",
    [
        'isthmus_mesh_info{mesh="acme",revision="1a2b"} 1.0',
        "isthmus_mesh_outage_window_seconds 3600.0",
        'isthmus_site_info{core="native",revision="1a2b",site="paris"} 1.0',
        'isthmus_site_delivered_messages_total{site="paris"} 7.0',
        'isthmus_site_state{isthmus_site_state="running",site="paris"} 1.0',
        'isthmus_site_state{isthmus_site_state="down",site="paris"} 0.0',
        'isthmus_site_dead_letters_waiting{site="paris"} 2.0',
        'isthmus_site_open_gaps{site="paris"} 1.0',
        'isthmus_site_mesh_file_faulty{site="paris"} 0.0',
        'isthmus_site_waiting_exchanges{site="paris"} 1.0',
        'isthmus_log_fill_ratio{site="paris"} 0.25',
        'isthmus_link_clock_ahead_seconds{from="tokyo",to="paris"} 1.5',
        'isthmus_link_sent_batches_total{from="tokyo",to="paris"} 5.0',
        'isthmus_link_skipped_batches_total{from="tokyo",reason="the receiver has it",to="paris"}'
        " 2.0",
        'isthmus_link_state{from="paris",isthmus_link_state="down",to="tokyo"} 1.0',
        'isthmus_lane_sent_batches_total{from="tokyo",lane="bulk",to="paris"} 2.0',
        'isthmus_lane_state{from="tokyo",isthmus_lane_state="lagging",lane="bulk",to="paris"} 1.0',
        'isthmus_link_receiver_arrived_batches_total{from="tokyo",to="paris"} 4.0',
        'isthmus_lane_receiver_arrived_batches_total{from="tokyo",lane="bulk",to="paris"} 4.0',
        'isthmus_slot_held{site="oslo",slot="0"} 1.0',
        'isthmus_slot_held{site="oslo",slot="1"} 0.0',
        'isthmus_slot_journal_rows_total{site="oslo",slot="0"} 1200.0',
        'isthmus_slot_journal_away_seconds{site="oslo",slot="0"} 0.0',
        'isthmus_copy_followed_seconds{site="oslo",slot="1"} 0.2',
        'isthmus_group_up{site="paris"} 1.0',
        'isthmus_certificate_expiry_timestamp_seconds{file="/pki/paris.pem",site="paris"} 1.8e+09',
        *(
            f"isthmus_end_to_end_delay_seconds_{end} {value}"
            for end, value in (
                ('bucket{exchange="orders",le="0.01",origin="tokyo",site="paris"}', "0.0"),
                ('bucket{exchange="orders",le="0.025",origin="tokyo",site="paris"}', "1.0"),
                ('bucket{exchange="orders",le="1.0",origin="tokyo",site="paris"}', "2.0"),
                ('bucket{exchange="orders",le="+Inf",origin="tokyo",site="paris"}', "3.0"),
                ('count{exchange="orders",origin="tokyo",site="paris"}', "3.0"),
                ('sum{exchange="orders",origin="tokyo",site="paris"}', "7200.22"),
            )
        ),
        'isthmus_site_packing_delay_seconds_count{site="paris"} 0.0',
        'isthmus_group_heard_age_seconds{from="tokyo",site="paris"} 2.5',
    ],
)
def test_a_figure_of_the_report_is_a_series_with_labels_and_base_units(line: str) -> None:
    assert samples(line.encode()).items() <= samples(NEW).items()


def test_a_figure_that_is_unknown_has_no_series() -> None:
    found = {name for name, labels in samples(NEW) if ("from", "lima") in labels}
    assert "isthmus_group_heard_age_seconds" not in found
    assert "isthmus_site_egress_messages" not in {name for name, _ in samples(NEW)}


def test_every_family_has_help_and_type_and_the_process_has_its_own() -> None:
    families = {family.name: family for family in text_string_to_metric_families(NEW.decode())}
    assert all(family.documentation for family in families.values())
    assert all(family.type != "unknown" for family in families.values())
    assert "process_resident_memory_bytes" in families
    assert families["isthmus_site_delivered_messages"].type == "counter"


def test_exactly_one_state_of_a_state_set_is_1() -> None:
    sets: dict[Labels, float] = {}
    for (name, labels), value in samples(NEW).items():
        if name.endswith("_state"):
            owner = frozenset(pair for pair in labels if pair[0] != name) | {("", name)}
            sets[owner] = sets.get(owner, 0.0) + value
    assert sets
    assert set(sets.values()) == {1.0}


def test_a_label_with_quotes_line_ends_and_backslashes_is_escaped() -> None:
    report = deepcopy(REPORT)
    report["links"][1]["skipped"] = {'of "another"\nmesh\\n': 1}
    key = ("reason", 'of "another"\nmesh\\n')
    assert any(key in labels for _, labels in samples(metrics_text(report, with_old_names=False)))


OLD = {
    'isthmus_site_delivered{site="paris"} 7',
    'isthmus_site_up{site="paris",state="running"} 1',
    'isthmus_site_native_core{site="paris"} 1',
    'isthmus_link_up{from="paris",to="tokyo",state="down"} 0',
    'isthmus_link_up{from="tokyo",to="paris",state="lagging"} 1',
    'isthmus_link_sent{from="tokyo",to="paris"} 5',
    'isthmus_lane_sent{from="tokyo",to="paris",lane="bulk"} 2',
    'isthmus_lane_up{from="tokyo",to="paris",lane="normal",state="running"} 1',
    'isthmus_link_in_arrived{from="tokyo",to="paris"} 4',
    'isthmus_slot_rows{site="oslo",slot="0"} 1200',
    'isthmus_copy_followed_s{site="oslo",slot="1"} 0.2',
    'isthmus_group_heard_s_ago{site="paris",from="tokyo"} 2.5',
    'isthmus_group_published{site="paris"} 4',
}


def test_series_by_their_former_names_stand_beside_and_can_be_left_out() -> None:
    assert set(lines(BOTH)) >= OLD
    assert not set(lines(NEW)) & OLD
    assert samples(BOTH).keys() > samples(NEW).keys(), "and none stands twice"


def test_the_slot_of_a_site_with_one_has_its_former_name_without_a_number() -> None:
    slot = {"epoch": 3, "rows": 1200, "waiting_bytes": 9, "journal_away_s": 12.5}
    sites = {"oslo": {"takeovers": 1, "slot": slot}, "lima": {"takeovers": 0, "copy": {"row": 7}}}
    text = metrics_text({"sites": sites, "links": []}, with_old_names=True)
    assert {
        'isthmus_slot_rows{site="oslo"} 1200',
        'isthmus_slot_journal_away_s{site="oslo"} 12.5',
        'isthmus_slot_journal_away_seconds{site="oslo",slot="0"} 12.5',
        'isthmus_slot_held{site="lima",slot="0"} 0.0',
        'isthmus_copy_row{site="lima",slot="0"} 7.0',
        'isthmus_site_takeovers{site="oslo"} 1',
    } <= set(lines(text))


def test_each_former_name_that_is_served_stands_in_the_catalogue() -> None:
    former = {metric.old for metric in CATALOGUE if metric.old} | {"isthmus_site_node_pid"}
    present = {name for name, _ in samples(NEW)}
    assert {name for name, _ in samples(BOTH)} - present <= former


def test_names_of_the_catalogue_are_metric_names() -> None:
    assert all(re.fullmatch(r"isthmus_[a-z_]+[a-z]", metric.name) for metric in CATALOGUE)
