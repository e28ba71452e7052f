"""Files with certificates that the mesh file names for a site, and when they expire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography import x509

from federation.durable_file import FileStamp
from federation.mesh import Site, TlsFiles


def presented_files(site: Site) -> list[str]:
    """Return the paths of certificates that the site's node shows to others, each once."""
    return list(dict.fromkeys(one.certificate for one in _files(site) if one.certificate))


def trusted_files(site: Site) -> list[str]:
    """Return the paths of the authorities that the site's node trusts, each once."""
    return list(dict.fromkeys(one.ca for one in _files(site) if one.ca))


def _files(site: Site) -> Iterator[TlsFiles]:
    yield site.admin_access.tls
    if site.broker is not None:
        yield site.broker.tls
    if site.nodes is not None:
        yield from filter(None, (site.nodes.zookeeper.tls, site.nodes.cassandra.tls))


def expiry_s(certificates: Iterable[x509.Certificate], *, trusted: bool) -> float:
    """Return when certificates of one file end to be of use (s since 1970): a chain with its first,
    `trusted` authorities, of which bundles gather expired ones, with their last.
    """
    ends = [one.not_valid_after_utc.timestamp() for one in certificates]
    return max(ends) if trusted else min(ends)


class CertificateExpiry:
    """Expiry of a site's files on this machine, read again once a file has changed."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, bool], tuple[FileStamp, float | None]] = {}

    def of(self, site: Site) -> dict[str, float]:
        """Return the expiry (s since 1970) of each file by its path, but of those that are missing
        or no PEM files with certificates, which `isthmus doctor` names.
        """
        files = dict.fromkeys(presented_files(site), False)
        files |= {path: True for path in trusted_files(site) if path not in files}
        found = {path: self._of_file(path, trusted) for path, trusted in files.items()}
        return {path: ends_s for path, ends_s in found.items() if ends_s is not None}

    def _of_file(self, path: str, trusted: bool) -> float | None:
        stamp = FileStamp.of(path)
        if stamp is None:
            return None
        kept = self._read.get((path, trusted))
        if kept is None or kept[0] != stamp:
            kept = self._read[path, trusted] = (stamp, _read_expiry(path, trusted))
        return kept[1]


def _read_expiry(path: str, trusted: bool) -> float | None:
    try:
        certificates = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return expiry_s(certificates, trusted=trusted) if certificates else None
