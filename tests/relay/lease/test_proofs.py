"""Right to act as the holder of a lease, by the probes that come back."""

from __future__ import annotations

import pytest

from relay.lease import Proofs

LEASE_S = 20.0
HERE, ELSEWHERE = b"h" * 16, b"e" * 16


def contender(holder: bytes = HERE, behind_s: float = LEASE_S) -> Proofs:
    return Proofs(holder, LEASE_S, behind_s)


def given(proofs: Proofs, body: bytes, now: float, *, redelivered: bool = False) -> bool:
    return proofs.given(body, redelivered=redelivered, now=now)


def holder_since(now: float) -> Proofs:
    """A contender whose first probe told it that it is the active consumer, and one more proved."""
    proofs = contender()
    given(proofs, proofs.probe(now), now)
    given(proofs, proofs.probe(now), now)
    assert proofs.is_held(now)
    return proofs


def test_who_gets_nothing_back_is_no_holder() -> None:
    proofs = contender()
    proofs.probe(0)
    assert not proofs.is_held(0)


def test_a_proof_counts_from_when_its_probe_was_sent_not_from_when_it_came() -> None:
    proofs = holder_since(0)
    late = proofs.probe(5)
    assert given(proofs, late, 18)
    assert proofs.is_held(24.9)
    assert not proofs.is_held(25)


def test_a_probe_from_before_the_first_delivery_proves_nothing_yet() -> None:
    proofs = contender()
    early = proofs.probe(0)
    assert given(proofs, early, 3)
    assert not proofs.is_held(3), "a former holder's probe may come behind it"
    given(proofs, proofs.probe(3), 4)
    assert proofs.is_held(4)


def test_where_a_journal_decides_it_waits_for_the_probe_and_little_more() -> None:
    former, proofs = holder_since(0), contender(ELSEWHERE, behind_s=1.0)
    given(proofs, former.probe(7), 8, redelivered=True)
    given(proofs, proofs.probe(8), 8.5)
    assert not proofs.is_held(8.9)
    assert proofs.is_held(9)
    assert former.is_held(9), "it does not know of its end yet"


def test_behind_another_holder_it_waits_until_that_ones_last_proof_is_over() -> None:
    former, proofs = holder_since(0), contender(ELSEWHERE)
    left = former.probe(7)
    given(proofs, left, 8, redelivered=True)
    given(proofs, proofs.probe(9), 9)
    given(proofs, proofs.probe(27.9), 27.9)
    assert not former.is_held(28)
    assert not proofs.is_held(27.9)
    assert proofs.is_held(28)


def test_behind_itself_it_waits_for_nothing() -> None:
    former, proofs = holder_since(0), contender()
    given(proofs, former.probe(7), 8, redelivered=True)
    given(proofs, proofs.probe(8), 8)
    assert proofs.is_held(8)


def test_a_probe_of_somebody_who_waits_in_line_makes_nobody_wait() -> None:
    proofs = holder_since(0)
    assert not given(proofs, contender(ELSEWHERE).probe(1), 1)
    assert proofs.is_held(1)


def test_a_probe_that_took_longer_than_a_lease_proves_nothing() -> None:
    proofs = holder_since(0)
    old = proofs.probe(1)
    proofs.probe(30)
    assert not given(proofs, old, 30)
    assert not proofs.is_held(30)


def test_a_name_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        contender(b"short")
