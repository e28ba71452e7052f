"""What `isthmus doctor` makes of the PEM files that a site names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from federation.mesh import (
    AdminAccess,
    BrokerAddress,
    BrokerAuth,
    EnsemblePlace,
    JournalPlace,
    NodeGroup,
    Site,
    TlsFiles,
)
from isthmus.doctor.certificates import WARN_BEFORE, examine_certificates
from isthmus.doctor.finding import Finding, Findings, Grade
from tests.certificates import DAY, Authority, replaced

AUTHORITY = Authority("a")  # good for a year


def found_of(site: Site) -> list[Finding]:
    found = Findings("paris")
    examine_certificates(site, datetime.now(UTC), found)
    return found.all


def with_tls(folder: Path, auth: BrokerAuth = BrokerAuth.PASSWORD) -> Site:
    """Whose files are those that are in the folder."""
    names = ("ca.pem", "relay.pem", "relay-key.pem")
    files = TlsFiles(*(str(folder / name) for name in names))
    broker = BrokerAddress("amqps://relay@b:5671/v", "", "env:P", tls=files, auth=auth)
    return Site("paris", "paris", broker=broker)


@pytest.mark.parametrize(
    ("begins", "ends", "grade", "said"),
    [
        (-DAY, 300 * DAY, Grade.OK, "is good until"),
        (-DAY, WARN_BEFORE - timedelta(hours=1), Grade.WARNING, "expires on"),
        (-2 * DAY, -DAY, Grade.FAULT, "has expired on"),
        (DAY, 300 * DAY, Grade.FAULT, "is not valid before"),
    ],
)
def test_a_certificate_is_told_before_it_is_refused(
    tmp_path: Path, begins: timedelta, ends: timedelta, grade: Grade, said: str
) -> None:
    AUTHORITY.issues(begins=begins, ends=ends).write(tmp_path, "relay")
    (finding,) = found_of(with_tls(tmp_path))
    assert finding.grade is grade
    assert f"relay.pem {said}" in finding.said


def test_a_certificate_for_cassandra_is_renewed_with_a_restart(tmp_path: Path) -> None:
    files = {}
    for name in ("zookeeper", "cassandra"):
        ends = WARN_BEFORE - timedelta(hours=1)
        pair = AUTHORITY.issues(begins=-DAY, ends=ends).write(tmp_path, name)
        files[name] = TlsFiles("", *map(str, pair))
    group = NodeGroup(
        EnsemblePlace(("z:1",), tls=files["zookeeper"]),
        JournalPlace(("c:1",), "dc1", "paris", tls=files["cassandra"]),
    )
    mends = [finding.mend for finding in found_of(Site("paris", "paris", nodes=group))]
    assert mends == [
        "renew the file: nothing has to be restarted for it",
        "renew the file: then restart the site's nodes in turn",
    ]


def test_of_many_authorities_the_last_one_counts(tmp_path: Path) -> None:
    old = AUTHORITY.issues(begins=-2 * DAY, ends=-DAY).certificate
    replaced(tmp_path / "ca.pem", old + AUTHORITY.certificate)
    (finding,) = found_of(with_tls(tmp_path))
    assert finding.grade is Grade.OK
    replaced(tmp_path / "ca.pem", old)
    (finding,) = found_of(with_tls(tmp_path))
    assert finding.grade is Grade.FAULT


def test_a_certificate_for_a_login_names_the_user(tmp_path: Path) -> None:
    AUTHORITY.issues(name="another", ends=300 * DAY).write(tmp_path, "relay")
    said = [one.said for one in found_of(with_tls(tmp_path, BrokerAuth.EXTERNAL))]
    assert [one for one in said if "common name another, and the user of `broker` is relay" in one]
    assert len(found_of(with_tls(tmp_path))) == 1  # it is no login then
    AUTHORITY.issues(name="relay", ends=300 * DAY).write(tmp_path, "relay")
    assert len(found_of(with_tls(tmp_path, BrokerAuth.EXTERNAL))) == 1


def test_the_nodes_own_is_looked_at_too(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.issues(ends=DAY).write(tmp_path, "node")
    access = AdminAccess("env:T", TlsFiles("", str(certificate), str(key)))
    (finding,) = found_of(Site("paris", "paris", admin="https://p:1", admin_access=access))
    assert finding.grade is Grade.WARNING


def test_a_file_without_certificates_is_a_fault_and_a_missing_file_nothing(tmp_path: Path) -> None:
    assert found_of(with_tls(tmp_path)) == []
    assert found_of(Site("paris", "paris")) == []
    replaced(tmp_path / "relay.pem", b"no")
    (finding,) = found_of(with_tls(tmp_path))
    assert finding.grade is Grade.FAULT
