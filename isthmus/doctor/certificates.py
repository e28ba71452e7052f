"""Examination of a site's PEM files, as far as on this machine: validity and names."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from federation.brokers.broker_uri import parse_amqp
from federation.certificate_files import presented_files, trusted_files
from federation.mesh import BrokerAuth, Site
from isthmus.doctor.finding import Findings

WARN_BEFORE = timedelta(days=14)
"""Time before expiry for a certificate that people issue."""


def examine_certificates(site: Site, now: datetime, found: Findings) -> None:
    """Examine the files of a site at `now`, a time with zone; missing files belong to another
    machine.
    """
    for path in presented_files(site):
        chain = _read(path, found)
        if chain:
            _examine_chain(path, chain, now, found, _when_renewed(site, path))
            if site.broker is not None and path == site.broker.tls.certificate:
                _examine_name(site, path, chain[0], found)
    for path in trusted_files(site):
        # Bundles gather expired authorities; only the last one to expire matters.
        authorities = _read(path, found)
        if authorities:
            last = max(authorities, key=lambda one: one.not_valid_after_utc)
            _examine_chain(path, [last], now, found, _when_renewed(site, path))


def _read(path: str, found: Findings) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(Path(path).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        found.fault("certificate", f"{path}: {error}", "put a PEM file with certificates there")
        return []


def _when_renewed(site: Site, path: str) -> str:
    """Return what else is to be done for a renewed file."""
    files = None if site.nodes is None else site.nodes.cassandra.tls
    if files is not None and path in (files.ca, files.certificate):
        return "then restart the site's nodes in turn"
    return "nothing has to be restarted for it"


def _examine_chain(
    path: str, chain: list[x509.Certificate], now: datetime, found: Findings, when_renewed: str
) -> None:
    begins = max(one.not_valid_before_utc for one in chain)
    ends = min(one.not_valid_after_utc for one in chain)
    if ends <= now:
        found.fault("certificate", f"{path} has expired on {ends:%Y-%m-%d}", "renew the file")
    elif begins > now:
        found.fault(
            "certificate",
            f"{path} is not valid before {begins:%Y-%m-%d %H:%M} UTC",
            "see this machine's clock, and that of whoever issued it",
        )
    elif ends - now < WARN_BEFORE:
        found.warn(
            "certificate",
            f"{path} expires on {ends:%Y-%m-%d %H:%M} UTC",
            f"renew the file: {when_renewed}",
        )
    else:
        found.ok("certificate", f"{path} is good until {ends:%Y-%m-%d}")


def _examine_name(site: Site, path: str, own: x509.Certificate, found: Findings) -> None:
    if site.broker is None or site.broker.auth is not BrokerAuth.EXTERNAL:
        return
    user = parse_amqp(site.broker.amqp).user
    names = [one.value for one in own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if user not in names:
        found.warn(
            "certificate",
            f"{path} has the common name {', '.join(map(str, names)) or 'of nobody'}, and the "
            f"user of `broker` is {user}",
            "unless the broker takes the user from another part of it (ssl_cert_login_from), write "
            "the one for the other",
        )
