"""The bucket, with time as a number."""

import pytest

from wan_proxy.token_bucket import TokenBucket


def test_after_the_burst_bytes_take_their_time() -> None:
    bucket = TokenBucket(8_000, burst_bytes=500, now=10.0)
    assert bucket.reserve(500, 10.0) == 10.0
    assert bucket.reserve(1_000, 10.0) == pytest.approx(11.0)
    assert bucket.reserve(1_000, 10.5) == pytest.approx(12.0)


def test_rest_earns_no_more_than_the_burst() -> None:
    bucket = TokenBucket(8_000, burst_bytes=500, now=0.0)
    assert bucket.reserve(1_500, 1_000.0) == pytest.approx(1_001.0)


def test_without_a_rate_all_passes_at_once() -> None:
    bucket = TokenBucket(None, burst_bytes=0, now=0.0)
    assert bucket.reserve(10**12, 3.0) == 3.0


def test_a_new_rate_holds_for_what_is_outstanding() -> None:
    bucket = TokenBucket(8_000, burst_bytes=0, now=0.0)
    assert bucket.reserve(10_000, 0.0) == pytest.approx(10.0)
    assert bucket.change_rate(80_000, 5.0) == pytest.approx(5.5)
    assert bucket.reserve(10_000, 5.0) == pytest.approx(6.5)
    assert bucket.change_rate(None, 5.1) == 5.1
    assert bucket.change_rate(8_000, 6.0) == 6.0
    assert bucket.reserve(1_000, 6.0) == pytest.approx(7.0)
