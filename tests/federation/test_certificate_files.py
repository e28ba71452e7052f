"""Certificates that the mesh file names: when they expire, and that a renewed file is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cryptography import x509

from federation.certificate_files import CertificateExpiry, presented_files, trusted_files
from federation.mesh import AdminAccess, Site, TlsFiles
from tests.certificates import DAY, Authority, replaced


def site(folder: Path) -> Site:
    tls = TlsFiles(str(folder / "ca.pem"), str(folder / "paris.pem"), str(folder / "key.pem"))
    return Site("paris", "paris", admin_access=AdminAccess("env:TOKEN", tls))


def ends_s(pem: bytes) -> list[float]:
    return [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(pem)]


def test_a_file_expires_with_the_first_of_a_chain_and_the_last_of_its_authorities(
    tmp_path: Path,
) -> None:
    authority, other = Authority("ours"), Authority("theirs")
    own = authority.issues(ends=10 * DAY).certificate
    replaced(tmp_path / "paris.pem", own + authority.certificate)
    replaced(tmp_path / "ca.pem", own + other.certificate)
    found = CertificateExpiry().of(site(tmp_path))
    assert found == {
        str(tmp_path / "paris.pem"): min(ends_s(own)),
        str(tmp_path / "ca.pem"): max(ends_s(other.certificate)),
    }


def test_a_renewed_file_is_read_again_and_a_missing_one_has_no_date(tmp_path: Path) -> None:
    authority, expiry = Authority("ours"), CertificateExpiry()
    assert expiry.of(site(tmp_path)) == {}
    path = tmp_path / "paris.pem"
    for days in (10, 20):
        pem = authority.issues(ends=days * DAY).certificate
        replaced(path, pem)
        assert expiry.of(site(tmp_path)) == {str(path): min(ends_s(pem))}
    path.write_text("no certificate")
    assert expiry.of(site(tmp_path)) == {}


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    twice = replace(site(tmp_path).admin_access.tls, ca=str(tmp_path / "paris.pem"))
    both = replace(site(tmp_path), admin_access=AdminAccess("env:TOKEN", twice))
    assert presented_files(both) == trusted_files(both) == [str(tmp_path / "paris.pem")]
