"""Load generator: numbered, confirmed messages out, and the fate of each at the sinks.

Sources and sinks run on one machine, in one process or several, so that one monotonic clock
measures latencies.
"""
