"""Why TLS refuses, in words: what the other side says, told by its own handshake with ours."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from federation.brokers.tls import ClientContext, client_context
from federation.brokers.tls_refusals import tls_refusal
from federation.mesh import TlsFiles
from tests.certificates import Authority, replaced
from tests.tls_page import is_said

SERVERS = Authority("of servers")


@pytest.fixture
def ours(tmp_path: Path) -> ClientContext:
    """Trusts the servers, and shows no certificate."""
    return client_context(TlsFiles(str(replaced(tmp_path / "ca.pem", SERVERS.certificate))))


@pytest.fixture
def theirs(tmp_path: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*SERVERS.issues().write(tmp_path, "server"))
    return made


def handshake_error(ours: ssl.SSLContext, theirs: ssl.SSLContext) -> ssl.SSLError:
    """Of a handshake that fails, and a read after it."""
    to_us, to_them = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ours.wrap_bio(to_us, to_them, server_hostname="127.0.0.1")
    server = theirs.wrap_bio(to_them, to_us, server_side=True)
    is_theirs_over = False
    for _ in range(10):
        try:
            client.do_handshake()
            client.read()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return error
        try:
            if not is_theirs_over:
                server.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            is_theirs_over = True  # its alert is on its way to us
    raise AssertionError("nothing was refused")


def test_a_server_of_tls_1_2_has_no_word_for_the_certificate_that_it_wants(
    ours: ClientContext, theirs: ssl.SSLContext
) -> None:
    theirs.maximum_version = ssl.TLSVersion.TLSv1_2
    theirs.verify_mode = ssl.CERT_REQUIRED
    theirs.load_verify_locations(cadata=SERVERS.certificate.decode())
    assert "it wants a certificate of us" in tls_refusal(handshake_error(ours, theirs), ours)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_server_that_speaks_only_what_is_older(
    ours: ClientContext, theirs: ssl.SSLContext
) -> None:
    theirs.set_ciphers("DEFAULT:@SECLEVEL=0")
    theirs.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    theirs.maximum_version = ssl.TLSVersion.TLSv1_1
    said = tls_refusal(handshake_error(ours, theirs), ours)
    assert is_said("it speaks only what is older than TLS 1.2", said), said


def test_a_host_name_is_checked(ours: ClientContext, theirs: ssl.SSLContext) -> None:
    other = Path(ours.files.ca).parent
    theirs.load_cert_chain(*SERVERS.issues("127.0.0.9").write(other, "other"))
    assert "for another host" in tls_refusal(handshake_error(ours, theirs), ours)


def test_what_is_no_matter_of_tls_is_not_told_as_one(ours: ClientContext) -> None:
    assert tls_refusal(ConnectionRefusedError(), ours) == ""
    assert tls_refusal(ConnectionResetError(), None) == ""
    assert tls_refusal(ConnectionResetError(), ours, in_login=False) == ""
    assert tls_refusal(TimeoutError(), ours) == ""


def test_an_end_in_the_login_may_be_a_refusal(ours: ClientContext) -> None:
    assert "perhaps it wants a certificate; see its log" in tls_refusal(None, ours)
    assert "Connection reset" in tls_refusal(ConnectionResetError(104, "Connection reset"), ours)
