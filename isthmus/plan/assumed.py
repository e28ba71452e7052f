"""What an operator expects of the load, as commands that calculate with it tell it in JSON."""

from __future__ import annotations

from typing import Any

from federation.planning.disk_need import PublishRates


def assumed_of(rates: PublishRates, size: float, compression: float) -> dict[str, Any]:
    """Messages a second, everywhere and where it was said otherwise; bytes of a body; by how much
    batches are compressed.
    """
    return {
        "rate_per_s": rates.everywhere,
        "exchange_rates_per_s": dict(rates.exchanges),
        "flow_rates_per_s": [
            {"exchange": exchange, "site": site, "rate_per_s": rate}
            for (exchange, site), rate in rates.flows.items()
        ],
        "size_bytes": size,
        "compression": compression,
    }
