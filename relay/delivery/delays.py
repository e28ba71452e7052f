"""Delays of delivered messages, since the process began."""

from __future__ import annotations

from relay.batches.batch import Flow
from relay.delay_histogram import DelayHistogram


class DeliveryDelays:
    """Histograms of one site's deliverer. A message counts with the delay of the oldest message of
    its batch, so that a batch costs as much as a message.
    """

    def __init__(self) -> None:
        self.stage = DelayHistogram()
        """Delays from the first look at a message, as the log is read, to its settlement."""
        self.end_to_end: dict[tuple[str, str], DelayHistogram] = {}
        """Delays from the publish at the origin to the confirmed delivery, by the origin's cluster
        ID and exchange.
        """

    def delivered(self, flow: Flow, delay_s: float, messages: int) -> None:
        """Note messages of a flow that arrived after `delay_s`."""
        key = (flow.origin, flow.exchange)
        histogram = self.end_to_end.get(key)
        if histogram is None:
            histogram = self.end_to_end[key] = DelayHistogram()
        histogram.observe(delay_s, messages)
