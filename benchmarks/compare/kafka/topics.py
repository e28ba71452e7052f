"""`python -m benchmarks.compare.kafka.topics create|wait ADDRESS TOPIC`: topics of a server.

A program of its own: only processes of the load have Kafka's client.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

_WITHIN_S = 120.0
_EACH_S = 5.0
_PAUSE_S = 0.2


def _create(client: AdminClient, topic: str) -> bool:
    """Create the topic with as many partitions as is the server's default."""
    try:
        client.create_topics([NewTopic(topic)])[topic].result(_EACH_S)
    except (KafkaException, TimeoutError):
        return _exists(client, topic)  # made by an attempt before, or the server still starts
    return True


def _exists(client: AdminClient, topic: str) -> bool:
    try:
        return topic in client.list_topics(timeout=_EACH_S).topics
    except KafkaException:
        return False


def main() -> int:
    """Return 0 once the topic is there, or 1 when time is up."""
    do, address, topic = sys.argv[1:]
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    end = time.monotonic() + _WITHIN_S
    attempt = _create if do == "create" else _exists
    while not attempt(client, topic):
        if time.monotonic() > end:
            print(f"not within {_WITHIN_S:g} s: the topic {topic!r}", file=sys.stderr)
            return 1
        time.sleep(_PAUSE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
