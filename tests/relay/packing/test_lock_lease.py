"""When a process may no longer believe that it holds its lock."""

from __future__ import annotations

from relay.packing.lock_lease import Lease


def test_the_lease_holds_while_the_broker_is_heard() -> None:
    lease = Lease(0.0, silence_s=15, stall_s=3)
    for n in range(1, 200):
        lease.tick(n / 2, bytes_heard=n)
        assert not lease.lapsed(n / 2 + 0.4)


def test_silence_ends_it() -> None:
    lease = Lease(0.0, silence_s=15, stall_s=3)
    lease.tick(0.5, 100)
    for n in range(2, 40):
        lease.tick(n / 2, 100)
    assert "nothing heard" in lease.lapsed(19.6)


def test_a_process_that_stood_still_has_lost_it_before_it_knows() -> None:
    lease = Lease(0.0, silence_s=15, stall_s=3)
    lease.tick(0.5, 100)
    assert not lease.lapsed(1.0)
    assert "stood still for 20.0 s" in lease.lapsed(20.5)


def test_our_own_not_reading_is_not_the_broker_s_silence() -> None:
    lease = Lease(0.0, silence_s=15, stall_s=3)
    for n in range(1, 60):
        lease.tick(n / 2, 100, listening=False)
        assert not lease.lapsed(n / 2)
