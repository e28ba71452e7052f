"""Load generator: numbered, confirmed messages out, and the fate of each at the sinks.

Sources and sinks run on one machine, in one process or several, so that one monotonic clock
measures latencies.
"""

from isthmus.load.messages import HEAD_BYTES, RUN_BYTES, Bodies, HalfRandom, Noise
from isthmus.load.sink import Arrivals, Latencies, LoadSink
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
]
