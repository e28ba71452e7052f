"""Alerts: each fires in time for what it names, none while all is well, and all are documented."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay.admin.metrics.exposition import metrics_text
from tests.deploy.rule_tests import TOP, check_firing, rules
from tests.deploy.series_names import names_in, series_names
from tests.simulation.test_metrics import MESHES, reports

RUNBOOK = TOP / "docs" / "runbook.md"
AT = 'job="isthmus",instance="a"'
SITE = f'{AT},site="paris"'
LINK = f'{AT},from="paris",to="tokyo"'
HEARD = f'{AT},site="paris",from="tokyo"'
DAY_S = 86_400
WELL = {
    'up{job="isthmus",instance="a"}': "1x400",
    'isthmus_audit_end_timestamp_seconds{mesh="acme"}': "0+30x400",
}
"""Series of a mesh of which nothing else is known: the audit is always of this moment."""


class Trouble(NamedTuple):
    """Series that begin the trouble at 10 min, and the times before and after the alert."""

    alert: str
    series: dict[str, str]
    not_yet: str
    by: str
    beside: tuple[str, ...] = ()
    """Alerts that the same trouble means as well."""
    interval: str = "30s"
    """Time between the values of the series."""


def turns(before: float, then: float) -> str:
    """Values that change at 10 min."""
    return f"{before}x19 {then}x400"


def state(kind: str, labels: str, name: str) -> dict[str, str]:
    """Return the series of one state, which begins at 10 min."""
    metric = f"isthmus_{kind}_state"
    return {f'{metric}{{{labels},{metric}="{name}"}}': turns(0, 1)}


def gauge(name: str, labels: str, before: float, then: float) -> dict[str, str]:
    return {f"isthmus_{name}{{{labels}}}": turns(before, then)}


WINDOW = {
    f"isthmus_mesh_outage_window_seconds{{{AT}}}": "3600x400",
    f"isthmus_site_barrier_memory_seconds{{{SITE}}}": "4200x400",
}
LAGS = {f"isthmus_link_lag_messages{{{LINK}}}": "5x400"}
TROUBLES = [
    Trouble("IsthmusNodeUnreachable", {f"up{{{AT}}}": turns(1, 0)}, "11m", "13m"),
    Trouble("IsthmusSiteStopped", state("site", SITE, "stopped"), "10m30s", "12m"),
    *(
        Trouble("IsthmusSiteDown", state("site", SITE, name), "11m", "13m")
        for name in ("down", "blocked", "starting")
    ),
    Trouble(
        "IsthmusSlotWithoutOwner",
        {
            **gauge("slot_held", f'{SITE},slot="0"', 1, 0),
            'isthmus_slot_held{job="isthmus",instance="b",site="paris",slot="0"}': "0x400",
        },
        "10m30s",
        "12m",
    ),
    Trouble(
        "IsthmusJournalAway", gauge("slot_journal_away_seconds", SITE, 0, 31), "9m30s", "10m30s"
    ),
    Trouble("IsthmusCopyBehind", gauge("copy_followed_seconds", SITE, 1, 31), "10m30s", "12m"),
    Trouble("IsthmusPausedForLong", state("site", SITE, "paused"), "69m", "71m"),
    Trouble("IsthmusPausedForLong", state("link", LINK, "paused"), "69m", "71m"),
    Trouble("IsthmusMeshFileFaulty", gauge("site_mesh_file_faulty", SITE, 0, 1), "14m", "16m"),
    Trouble(
        "IsthmusRevisionsDiffer",
        {
            f'isthmus_mesh_info{{{AT},mesh="acme",revision="1"}}': "1x400",
            f'isthmus_mesh_info{{{AT},mesh="acme",revision="2"}}': "_x19 1x400",
        },
        "24m",
        "26m",
    ),
    Trouble(
        "IsthmusStateDiskFull",
        {
            **gauge("site_state_disk_free_bytes", SITE, 30, 19),
            f"isthmus_site_state_disk_size_bytes{{{SITE}}}": "100x400",
        },
        "14m",
        "16m",
    ),
    Trouble("IsthmusLogRoomShort", gauge("log_fill_ratio", SITE, 0.7, 0.81), "10m30s", "12m"),
    Trouble("IsthmusLogTailLost", gauge("log_tails_lost_total", SITE, 0, 1), "9m30s", "10m30s"),
    Trouble(
        "IsthmusCertificateExpires",
        gauge("certificate_expiry_timestamp_seconds", SITE, 15 * DAY_S, 13 * DAY_S),
        "9m30s",
        "10m30s",
    ),
    Trouble("IsthmusLinkStalled", {**state("link", LINK, "stalled"), **LAGS}, "10m", "11m"),
    Trouble(
        "IsthmusCanaryLost",
        {**state("link", LINK, "stalled"), f"isthmus_link_lag_messages{{{LINK}}}": "0x400"},
        "10m",
        "11m",
    ),
    *(
        Trouble("IsthmusLinkNotConnected", state("link", LINK, name), "14m", "16m")
        for name in ("down", "blocked", "starting")
    ),
    Trouble("IsthmusGap", gauge("site_open_gaps", SITE, 0, 1), "9m30s", "10m"),
    Trouble(
        "IsthmusLinkLagging", {**gauge("link_lag_seconds", LINK, 2, 61), **WINDOW}, "10m30s", "12m"
    ),
    Trouble(
        "IsthmusLagNearsOutageWindow",
        {**gauge("link_lag_seconds", LINK, 2, 361), **WINDOW},
        "9m30s",
        "10m",
    ),
    Trouble(
        "IsthmusBarrierWindowNearsEnd",
        {**gauge("link_lag_seconds", LINK, 2, 3361), **WINDOW},
        "9m30s",
        "12m",
        ("IsthmusLagNearsOutageWindow", "IsthmusLinkLagging"),
    ),
    *(
        Trouble(
            "IsthmusClocksApart", gauge("link_clock_ahead_seconds", LINK, 1, ahead), "14m", "16m"
        )
        for ahead in (5.1, -5.1)
    ),
    Trouble(
        "IsthmusBatchesRefused",
        gauge("link_receiver_refused_batches_total", LINK, 0, 1),
        "9m30s",
        "10m30s",
    ),
    Trouble(
        "IsthmusInauthenticBatches",
        gauge("link_receiver_inauthentic_batches_total", LINK, 0, 1),
        "9m30s",
        "10m30s",
    ),
    Trouble(
        "IsthmusNeighbourNotUnderstood",
        gauge("site_neighbours_not_understood", SITE, 0, 1),
        "14m",
        "16m",
    ),
    Trouble("IsthmusDeliveryStands", gauge("site_standing_flows", SITE, 0, 1), "14m", "16m"),
    Trouble(
        "IsthmusDeliveryDeferred",
        gauge("site_waiting_deferred_messages", SITE, 0, 3),
        "19m",
        "21m",
    ),
    Trouble(
        "IsthmusDeliveryStalled",
        gauge("site_undelivered_messages", SITE, 0, 7),
        "20m",
        "26m",
    ),
    Trouble(
        "IsthmusEgressStalled",
        {
            **gauge("site_egress_messages", SITE, 0, 7),
            f"isthmus_site_packed_messages_total{{{SITE}}}": "0+5x19 100x400",
        },
        "20m",
        "26m",
    ),
    Trouble("IsthmusExchangeWaits", gauge("site_waiting_exchanges", SITE, 0, 1), "14m", "16m"),
    Trouble(
        "IsthmusDeadLettersWaiting", gauge("site_dead_letters_waiting", SITE, 0, 1), "14m", "16m"
    ),
    Trouble("IsthmusQuarantineWaiting", gauge("site_quarantine_waiting", SITE, 0, 1), "14m", "16m"),
    Trouble(
        "IsthmusIdentityConflicts",
        gauge("site_identity_conflicts_total", SITE, 0, 1),
        "9m30s",
        "10m30s",
    ),
    Trouble("IsthmusGroupAway", gauge("group_up", SITE, 1, 0), "14m", "16m"),
    Trouble(
        "IsthmusGroupMemberUnheard",
        {
            **gauge("group_heard_age_seconds", HEARD, 2, 31),
            f"isthmus_group_heard_linked_age_seconds{{{HEARD}}}": "3x400",
        },
        "14m",
        "16m",
    ),
    Trouble(
        "IsthmusGroupLoses",
        {
            **gauge("group_heard_missing_datagrams", HEARD, 1, 11),
            f"isthmus_group_heard_sent_datagrams{{{HEARD}}}": "100x400",
        },
        "19m",
        "21m",
    ),
    Trouble(
        "IsthmusAuditFindings",
        gauge("audit_last_verdict", 'isthmus_audit_last_verdict="findings"', 0, 1),
        "9m30s",
        "10m",
    ),
    Trouble(
        "IsthmusAuditNotProven",
        gauge("audit_last_verdict", 'isthmus_audit_last_verdict="not proven"', 0, 1),
        "129m",
        "131m",
    ),
    Trouble(
        "IsthmusAuditMissing",
        {'isthmus_audit_end_timestamp_seconds{mesh="acme"}': "0x400"},
        "25h56m",
        "26h04m",
        interval="4m",
    ),
    Trouble(
        "IsthmusAuditUnknown",
        {'isthmus_audit_end_timestamp_seconds{mesh="acme"}': "_x400"},
        "25h56m",
        "26h04m",
        interval="4m",
    ),
    Trouble(
        "IsthmusLedgerExportFailing", gauge("site_ledger_export_failing", SITE, 0, 1), "24m", "26m"
    ),
]


@pytest.mark.parametrize(
    "trouble", TROUBLES, ids=[f"{one.alert}-{n}" for n, one in enumerate(TROUBLES)]
)
def test_an_alert_fires_in_time_for_what_it_names_and_no_other_does(
    trouble: Trouble, tmp_path: Path
) -> None:
    firing = {trouble.not_yet: (), trouble.by: (trouble.alert, *trouble.beside)}
    check_firing(tmp_path, {**WELL, **trouble.series}, firing, trouble.interval)


@pytest.mark.parametrize("kind", ["site", "link"])
def test_what_an_operator_holds_back_is_not_called_stalled(kind: str, tmp_path: Path) -> None:
    held = f'isthmus_{kind}_state{{{SITE},isthmus_{kind}_state="paused"}}'
    series = {
        **WELL,
        held: "1x400",
        f"isthmus_site_undelivered_messages{{{SITE}}}": "7x400",
        f"isthmus_site_egress_messages{{{SITE}}}": "7x400",
        f"isthmus_site_packed_messages_total{{{SITE}}}": "5x400",
    }
    stalled = {"IsthmusDeliveryStalled", "IsthmusEgressStalled"} if kind == "link" else set()
    check_firing(tmp_path, series, {"40m": stalled})


def test_a_certificate_that_ends_within_two_days_is_critical(tmp_path: Path) -> None:
    [soon] = [r for r in rules() if "2 * 86400" in r["expr"]]
    assert soon["labels"] == {"severity": "critical"}
    expiry = f"isthmus_certificate_expiry_timestamp_seconds{{{SITE}}}"
    check_firing(tmp_path, {**WELL, expiry: f"{DAY_S}x400"}, {"1m": ["IsthmusCertificateExpires"]})


@pytest.mark.parametrize("kind", MESHES)
def test_no_alert_fires_over_the_metrics_of_a_mesh_that_is_well(kind: str, tmp_path: Path) -> None:
    mesh, nodes, _ = MESHES[kind]
    series = dict(WELL)
    for number, report in enumerate(reports(mesh, tmp_path / "mesh", nodes)):
        for site in report["sites"].values():
            site["state_disk_bytes"], site["state_disk_free_bytes"] = 100, 50  # this machine's
        text = metrics_text(report, with_old_names=False).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels, "job": "isthmus", "instance": str(number)}
                inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
                series[f"{sample.name}{{{inside}}}"] = f"{sample.value}x400"
    assert len(series) > 100
    check_firing(tmp_path, series, {"5m": (), "1h": (), "3h": ()})


def test_each_alert_has_a_test_of_its_own() -> None:
    assert {rule["alert"] for rule in rules()} == {trouble.alert for trouble in TROUBLES}


def test_each_alert_has_a_section_of_the_runbook_and_each_section_an_alert() -> None:
    page = RUNBOOK.read_text()
    sections = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert Counter(sections) == Counter({rule["alert"]: 1 for rule in rules()})
    for rule in rules():
        where = f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == where
    for section in page.split("\n### ")[1:]:
        for part in ("Means", "Confirm", "Do", "Do not"):
            assert section.count(f"- **{part}**") == 1, section.splitlines()[0]


def test_each_alert_says_what_is_the_matter_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["description"].endswith(".")


def test_each_metric_of_an_alert_exists() -> None:
    found = {name for rule in rules() for name in names_in(rule["expr"])}
    assert found - series_names() == set()
