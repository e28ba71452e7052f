"""Reasons why a connection over TLS failed, in words with a remedy. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

from federation.brokers.tls import ClientContext
from federation.mesh import SYSTEM_TRUST, TlsFiles

_Wording = Callable[[TlsFiles, str], str]


class TlsRefused(ConnectionError):
    """One side does not accept the other's certificate; the text names which, and a remedy."""


def tls_refusal(
    error: BaseException | None, context: ssl.SSLContext | None, *, in_login: bool = True
) -> str:
    """Explain an error of a connection that was made with `context`; empty if TLS was not the
    cause.

    The other side's refusal comes after an apparently complete handshake: with the first read, or
    as a mere end of the connection if that read came too late. So an end `in_login` may be a
    refusal.
    """
    if context is None:
        return ""
    files = context.files if isinstance(context, ClientContext) else SYSTEM_TRUST
    every = list(_chain(error))
    found = next((cause for cause in every if isinstance(cause, ssl.SSLError)), None)
    if found is None:
        ended = next((cause for cause in every if isinstance(cause, _ENDS)), None)
        return _broken_off(files, str(ended)) if in_login and (ended or error is None) else ""
    detail = found.strerror or str(found)
    if isinstance(found, ssl.SSLCertVerificationError):
        wording = _VERIFY_ERRORS.get(found.verify_code, _another_fault)
        return wording(files, found.verify_message.rstrip("."))
    return _ALERTS.get(found.reason or "", _another_alert)(files, detail)


def not_offered(mechanism: str, offered: str) -> str:
    """Explain that a broker does not offer the login mechanism needed."""
    mend = (
        ": enable its plugin rabbitmq_auth_mechanism_ssl, add EXTERNAL to its auth_mechanisms, and "
        "let it ask for certificates (ssl_options.verify = verify_peer)"
    )
    lacks = f"the broker does not offer {mechanism} but {offered!r}"
    return lacks + (mend if mechanism == "EXTERNAL" else "")


def _broken_off(files: TlsFiles, detail: str) -> str:
    whether = f"does not accept {_ours(files)}" if files.certificate else "wants a certificate"
    return (
        f"it ended the connection before it said anything ({detail or 'end of file'}): perhaps it "
        f"{whether}; see its log"
    )


def _expired(files: TlsFiles, detail: str) -> str:
    return "its certificate has expired: renew it there (or this machine's clock is wrong)"


def _not_yet(files: TlsFiles, detail: str) -> str:
    return "its certificate is not valid yet: see the clocks, here and where it was issued"


def _for_another_host(files: TlsFiles, detail: str) -> str:
    return (
        f"its certificate is for another host ({detail}): write an address that stands in the "
        "certificate, or have it issued for this one"
    )


def _unknown_authority(files: TlsFiles, detail: str) -> str:
    whom = files.ca or "the system's authorities"
    return (
        f"nobody in {whom} vouches for its certificate ({detail}): put the certificate of its "
        "authority into the file that `tls: ca` names"
    )


def _another_fault(files: TlsFiles, detail: str) -> str:
    return f"its certificate is not accepted: {detail}"


def _wants_certificate(files: TlsFiles, detail: str) -> str:
    if files.certificate:
        return f"it is not content with the certificate {files.certificate} ({detail}): see its log"
    return "it wants a certificate of us: name one with `tls: certificate` and `key`"


def _ours_unknown(files: TlsFiles, detail: str) -> str:
    return (
        f"it does not trust who issued {_ours(files)}: have another one issued, or put the "
        "certificate of its authority into the file that the other side trusts"
    )


def _ours_expired(files: TlsFiles, detail: str) -> str:
    return f"{_ours(files)} has expired: renew the file (or the other side's clock is wrong)"


def _ours_refused(files: TlsFiles, detail: str) -> str:
    return f"it does not accept {_ours(files)} ({detail}): see its log"


def _no_tls(files: TlsFiles, detail: str) -> str:
    return f"what listens there speaks no TLS ({detail}): is it the port of the TLS listener?"


def _too_old(files: TlsFiles, detail: str) -> str:
    return f"no version of TLS that both sides speak ({detail}): it has to speak TLS 1.2 or newer"


def _another_alert(files: TlsFiles, detail: str) -> str:
    return f"no TLS connection: {detail}"


def _ours(files: TlsFiles) -> str:
    return f"our certificate {files.certificate}" if files.certificate else "our certificate"


_VERIFY_ERRORS: dict[int, _Wording] = {
    9: _not_yet,
    10: _expired,
    18: _unknown_authority,
    19: _unknown_authority,
    20: _unknown_authority,
    21: _unknown_authority,
    62: _for_another_host,
    64: _for_another_host,
}
"""Wordings by OpenSSL's number (X509_V_ERR_*)."""

_ALERTS: dict[str, _Wording] = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _wants_certificate,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _wants_certificate,  # TLS 1.2 has no better alert
    "SSL/TLS_ALERT_HANDSHAKE_FAILURE": _wants_certificate,
    "TLSV1_ALERT_UNKNOWN_CA": _ours_unknown,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _ours_expired,
    "SSLV3_ALERT_BAD_CERTIFICATE": _ours_refused,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _ours_refused,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _ours_refused,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _ours_refused,
    "TLSV1_ALERT_ACCESS_DENIED": _ours_refused,
    "TLSV1_ALERT_PROTOCOL_VERSION": _too_old,
    "UNSUPPORTED_PROTOCOL": _too_old,
    "WRONG_VERSION_NUMBER": _no_tls,
    "RECORD_LAYER_FAILURE": _no_tls,
}
"""Wordings by OpenSSL's name of the other side's alert, or of the bytes in its place."""


_ENDS = (ConnectionResetError, BrokenPipeError, EOFError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes: clients wrap errors."""
    seen: set[int] = set()
    ahead: list[Any] = [error]
    while ahead:
        cause = ahead.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        within = [getattr(cause, name, None) for name in ("os_error", "certificate_error")]
        if within == [None, None]:  # else aiohttp's wrapper, an SSLError by name only
            yield cause
        ahead += [*within, cause.__cause__, cause.__context__]
