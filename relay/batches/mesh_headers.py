"""Headers that the relay gives messages, by name, and what each says."""

from __future__ import annotations

FORGEABLE_PREFIX = b"x-mesh-"
"""Names that begin so are the relay's: packers take them from what publishers send."""

PATH_HEADER = b"x-mesh-path"
EXCHANGE_HEADER = b"x-mesh-exchange"
REDELIVERED_HEADER = b"x-mesh-redelivered"
REPAIRED_HEADER = b"x-mesh-repaired"
DEATHS_HEADER = b"x-mesh-deaths"
USER_HEADER = b"x-mesh-user-id"
CLUSTER_HEADER = b"x-mesh-cluster-id"

DEAD_REASON_HEADER = b"x-mesh-dead-reason"
ATTEMPTS_HEADER = b"x-mesh-dead-attempts"
QUARANTINE_REASON_HEADER = b"x-mesh-quarantine-reason"
OFFSET_HEADER = b"x-mesh-log-offset"
KEY_HEADER = b"x-mesh-routing-key"
BATCH_HEADER = b"x-mesh-batch"
NUMBER_HEADER = b"x-mesh-entry"
IDENTITY_HEADER = b"x-mesh-identity"
PUBLISHED_HEADER = b"x-mesh-published"

DELIVERED = {
    PATH_HEADER: "cluster IDs of the sites that the message came through, with commas between",
    EXCHANGE_HEADER: "exchange of the mesh in which it was published",
    REDELIVERED_HEADER: "true: it may have been delivered before",
    REPAIRED_HEADER: "cluster ID of its origin, where `isthmus repair` sent it again",
    DEATHS_HEADER: "digest of the `x-death` with which it was published",
    USER_HEADER: "`user_id` that the publisher gave it",
    CLUSTER_HEADER: "`cluster_id` that the publisher gave it",
}
"""Headers of messages that a site's applications get."""
PUT_ASIDE = {
    DEAD_REASON_HEADER: "reason why a dead letter could not be delivered",
    ATTEMPTS_HEADER: "number of attempts to deliver it",
    QUARANTINE_REASON_HEADER: "reason why a message was quarantined",
    OFFSET_HEADER: "place in the site's log; -1: it came over a link and stands in no log",
    KEY_HEADER: "routing key with which it was published",
    BATCH_HEADER: "name of its batch",
    NUMBER_HEADER: "its number in the batch, from 0",
    IDENTITY_HEADER: "identity by which the barrier knows it",
    PUBLISHED_HEADER: "time of publishing, in ms since 1970",
}
"""Headers of messages in a site's dead letters and quarantine, besides."""
