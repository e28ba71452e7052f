"""Load for a measurement: numbered, confirmed messages out, and what became of each at the others.

Whoever sends and whoever takes run on one machine, so that one monotonic clock tells how long a
message was under way; in one process or in several.
"""

from isthmus.load.bodies import Bodies, HalfRandom, Noise, ShopDocuments
from isthmus.load.latencies import Latencies
from isthmus.load.message import HEAD_BYTES, RUN_BYTES
from isthmus.load.sink import Arrivals, LoadSink
from isthmus.load.source import LoadSource

__all__ = [
    "HEAD_BYTES",
    "RUN_BYTES",
    "Arrivals",
    "Bodies",
    "HalfRandom",
    "Latencies",
    "LoadSink",
    "LoadSource",
    "Noise",
    "ShopDocuments",
]
