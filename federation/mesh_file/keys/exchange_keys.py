"""Keys of an exchange in the mesh file."""

from __future__ import annotations

from typing import Literal

from federation.mesh_file.keys.values import Duration, Identity, Section, key


class RetryKeys(Section):
    """Attempts at a message that a site's broker refuses, as a full queue does."""

    max_attempts: int = key(
        5,
        "attempts before a refused message becomes a dead letter",
        trades="more: a queue that is full for long loses nothing; its flow waits meanwhile",
        ge=1,
        le=1000,
    )
    backoff: list[Duration] = key(
        ["200ms", "30s"],
        "the first wait and the longest; each wait doubles the one before",
        trades="shorter: sooner through, and more work for a broker that is in trouble",
        min_length=2,
        max_length=2,
    )


class ExchangeKeys(Section):
    """An AMQP exchange that the mesh spans: published to at one site, delivered at others."""

    name: str = key(..., "of the AMQP exchange, the same at every site", min_length=1)
    type: Literal["topic", "direct", "fanout", "headers"] = key(
        "topic", "of the AMQP exchange, the same at every site"
    )
    keys: list[str] | None = key(
        None,
        "binding keys of messages that leave a site; a direct exchange needs them, fanout and"
        " headers exchanges have none",
        trades="fewer: less crosses the WAN; other messages stay at their site",
        without="all keys",
    )
    origins: list[str] | None = key(
        None,
        "sites, or tags of sites, whose messages leave",
        without="all sites except those of `never_via`",
        alias="from",
        min_length=1,
    )
    destinations: list[str] | None = key(
        None,
        "sites, or tags of sites, that get the messages; a site can narrow its share by `wants`",
        trades="fewer: less crosses the WAN and less disk at each site",
        without="all sites except those of `never_via`",
        alias="to",
        min_length=1,
    )
    never_via: list[str] = key(
        [],
        "sites, or tags of sites, that may never hold its messages, not even on the way",
        trades="more: fewer ways round a cut link; an exchange with unreachable sites is refused",
    )
    mode: Literal["transparent", "split"] = key(
        "transparent",
        "where a site's consumers bind: to the exchange itself, or (split) to `NAME.in`",
        trades="split: some 25 us less a delivery at the broker, and proof against users tagged "
        "`impersonator`; consumers must bind elsewhere",
    )
    identity: Identity = key(
        "uuid",
        "identity of a message, by which duplicates are recognised: the message_id where it "
        "is a UUID (also as a URN, `urn:uuid:...`), any message_id, a header, the content, or "
        "none",
        trades="message_id and header: only for publishers that never use a value again",
    )
    scope: Literal["mesh", "origin"] = key(
        "mesh",
        "where an identity is unique",
        trades="mesh: a publisher that fails over to another site and sends again is recognised",
    )
    order: Literal["strict", "best_effort"] = key(
        "strict",
        "strict: later messages of an origin wait for a message that is tried again",
        trades="best_effort: up to 1,000 refused messages (16 MiB) of an origin wait aside, and "
        "later ones overtake them",
    )
    retry: RetryKeys = key({}, "retries of messages that a site's broker refuses")
    acks: Literal["local", "remote"] = key(
        "local",
        "when egress forgets a message: once the site's log has it, or a neighbour's log too",
        trades="remote: survives the loss of a site's whole broker; a site that is cut off "
        "keeps its messages in its egress queue, and with `wants` a site that is away holds up "
        "what comes after a message for it",
    )
    priorities: Literal["keep", "order"] = key(
        "keep",
        "what a publisher's `priority` does to messages that wait in egress: nothing on RabbitMQ "
        "3, while on RabbitMQ 4 a higher one goes first (keep); nothing on any release (order)",
        trades="order: egress is a classic queue, on one broker node, which confirms what is "
        "written before that is synced; where the exchange is in use already, its egress queue "
        "has to be drained and deleted first",
    )
    large: Literal["body", "reference"] = key(
        "body",
        "what consumers get of a message above `content: {above: ...}` at a site that has that key:"
        " the body, or (reference) none, with headers by which `isthmus content get` fetches it",
        trades="reference: consumers that need few bodies are spared the others; the body is in"
        " Cassandra once more, for as long as the log keeps a message, and a day",
    )
    lane: str = key(
        "normal",
        "lane of the mesh in which its messages go",
        trades=(
            "urgent: past all backlogs, for little traffic; bulk: for messages that may "
            "wait. Order holds within an exchange and lane, so not across a change of lane"
        ),
    )
    partitions: int = key(
        1,
        "egress queues among which the broker spreads the messages by a hash of their routing "
        "keys; a site's slots share them",
        trades="more, up to 16: an exchange beyond one queue or one slot; order, and the "
        "recognition of duplicates, hold among messages of a key, and brokers before 4.3 need the "
        "plugin rabbitmq_sharding",
        ge=1,
        le=16,
    )
    deadline: Duration | None = key(
        None,
        "longest time from publishing to delivery; messages that take longer are delivered, "
        "and `late` in the audit",
        trades="shorter: the audit finds a slow line sooner, and a cut one every time; clocks that "
        "differ count as well",
        without="none",
    )
