"""When a refused message is tried again, and when no more."""

from __future__ import annotations

from collections.abc import Callable

from federation.mesh import RetryRule


def retry_delay_s(rule: RetryRule, attempts: int, random: Callable[[], float]) -> float | None:
    """Seconds to wait after `attempts` failed ones; None when it is a dead letter now.

    Doubles from the first to the most, with full jitter in its upper half: two flows that were
    refused together do not come back together. `random` gives [0, 1).
    """
    if attempts >= rule.max_attempts:
        return None
    whole: float = min(rule.backoff_most_s, rule.backoff_first_s * 2.0 ** (attempts - 1))
    return whole * (0.5 + random() / 2)


def reconnect_delay_s(failures: int, random: Callable[[], float]) -> float:
    """Seconds before a connection is tried again: 0.2 doubling to 30, jittered likewise."""
    whole: float = min(30.0, 0.2 * 2.0 ** min(failures, 16))
    return whole * (0.5 + random() / 2)
