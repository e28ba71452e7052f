"""Events of nodes' logs: a stable name for each kind of line, and what such a line means."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

FIELDS: Final = ("event", "site", "link", "batch")
"""Keys of a line that its caller gives as `extra`."""

LOG_EVENTS: Final = MappingProxyType(
    {
        "admin-connection-left": "A client kept a connection to the admin port open at the end.",
        "admin-token-missing": "The token of `admin:` cannot be read; requests get status 503.",
        "bad-record-waits": "A record of the log is no batch, and the quarantine takes nothing.",
        "batch-never-taken": "The other end will never take a batch, and the link goes on.",
        "batch-quarantined": "A link brought bytes that are no batch of its mesh, now put aside.",
        "broker-away": "The site's broker does not answer the deliverer, which tries again.",
        "broker-not-as-declared": "A private broker could not be declared as the mesh file says.",
        "certificate-unusable": "Changed certificates cannot be used; the former ones go on.",
        "certificate-usable": "The certificates can be used again.",
        "channel-not-closed": "A channel of the deliverer did not close in order.",
        "content-away": "The content store does not answer; what is to be stored or read waits.",
        "copy-begun-anew": "A node's copy of a slot begins with a snapshot, rows being gone.",
        "delivery-stopped-at-gap": "A flow stops: the log has lost batches not delivered yet.",
        "drain-not-noted": "The mark that a site is drained cannot be written or removed.",
        "gap-accepted": "A stage goes on behind a gap, as a person has ordered.",
        "gap-order-unreadable": "The order to accept a gap cannot be read: give it again.",
        "gaps-not-written": "The file of the open gaps cannot be written; the stage stands.",
        "gaps-unreadable": "The file of the open gaps cannot be read.",
        "group-away": "The site is away from its multicast group; links bring all.",
        "group-batch-refused": "A batch of the group was not taken; links bring it if it is good.",
        "group-key-unusable": "The key of the multicast group cannot be read; links bring all.",
        "holds-unreadable": "The orders to pause, drain or quiesce cannot be read.",
        "journal-away": "The journal does not answer; the slot's writes wait.",
        "journal-writer-failed": "A fault of the program ended the journal's writer.",
        "ledger-export-failed": "The ledger was not exported; its rows are kept for the next try.",
        "ledger-export-postponed": "No time was left to export the ledger at the end.",
        "link-ended": "A session of a link has ended, and is begun again.",
        "link-reads-from-start": "A sender's place in the log is lost; the link begins anew.",
        "link-stopped-at-gap": "A link stops: the log has lost batches that it still had to send.",
        "link-taken-out": "A link with a backlog is not in the mesh file any more.",
        "log-away": "The site's log does not answer; the node connects again.",
        "log-room-changed": "The log is near its limit and takes no messages, or has room again.",
        "mark-not-stored": "The place that is delivered was not stored; the next round does it.",
        "members-not-written": "The file of the sites of other revisions cannot be written.",
        "members-unreadable": "The file of the sites of other revisions cannot be read.",
        "mesh-file-refused": "A changed mesh file is not taken up; the former one goes on.",
        "message-incomplete": "A message in pieces will never be complete.",
        "deferred-gone": "Deferred messages went with a gap of the log that a person accepted.",
        "deferred-unreadable": "Deferred messages cannot be read again from the log.",
        "messages-doubtful": "Messages without identity came again, and go out flagged.",
        "node-failed": "A node ended by a failure, and begins again or is left to its supervisor.",
        "orders-not-shared": "A site's orders could not be read or written for its other nodes.",
        "orders-taken": "Orders of the node that runs the first slot were taken up.",
        "packing-began": "The packer takes messages from now on.",
        "pieces-missing": "A piece of a message came without the pieces before it.",
        "repair-without-proof": "A repaired message waits: the ledger cannot prove it undelivered.",
        "revision-not-learned": "The sites of another revision of the mesh cannot be used.",
        "revision-taken-up": "A changed mesh file was taken up.",
        "revision-unreadable": "A kept revision of the mesh file cannot be read.",
        "revisions-not-forgotten": "Old revisions of the mesh could not be removed.",
        "site-back-in-file": "A site that had left the mesh file is in it again, and starts.",
        "site-stopped": "A site stopped for a reason that no restart mends.",
        "slot-given": "A slot goes to another node.",
        "slot-standing-by": "A node stands by for a slot, and says which node runs it.",
        "slot-taken": "A node has taken a slot over.",
        "snapshot-made": "A snapshot of a slot's state is in the journal.",
        "stage-failed": "A stage of a node ended by a failure; its trace is in `exception`.",
        "stages-ended": "The stages of a node ended in order.",
        "standing-by": "A node has lost its site to another, and stands by.",
        "state-not-confirmed": "The last writes of a shared state were not confirmed at the end.",
        "systemd-away": "systemd did not take a sign of life; the next one follows.",
        "traces-not-taken": "The collector takes no spans; they are lost, and messages go on.",
        "traces-off": "Traces are turned on and cannot be made; the node goes on without.",
        "traces-taken-again": "The collector takes spans again.",
        "zookeeper-state": "The connection with ZooKeeper has changed.",
    }
)
"""Meanings of the events, by their names."""


class JsonLines(logging.Formatter):
    """Formatter of log records as JSON lines. `trace_id_of`, where batches are traced, returns the
    ID of the trace of a batch by the batch's name.
    """

    def __init__(self, trace_id_of: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._trace_id_of = trace_id_of

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: getattr(record, key) for key in FIELDS if hasattr(record, key)})
        if self._trace_id_of is not None and "batch" in line:
            line["trace_id"] = self._trace_id_of(line["batch"])
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
