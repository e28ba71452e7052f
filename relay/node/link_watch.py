"""What is looked at once a second of all links of one site: how they and the clocks are, and which
of them are so quiet that a canary is due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from federation.mesh import Link, Mesh
from relay.links.canaries import Ask, Canaries, LinkActivity
from relay.links.link_state import LinkFacts, Movement, ReportedState, reported_state
from relay.links.receiver.task import LinkReceiverTask
from relay.links.sender.task import LinkSenderTask
from relay.links.sender.timing import clock_difference_ms


class LinkWatch:
    """One site's."""

    def __init__(self) -> None:
        self.clock_differences_ms: dict[str, int] = {}
        """A neighbour's clock minus ours, by cluster ID, once it was measured; told anew in this
        same object."""
        self._movements: defaultdict[str, Movement] = defaultdict(Movement)
        """Of each link out of here, by its name."""
        self._canaries = Canaries()
        self.ask: Ask = lambda: None
        """The packer's."""

    def look(
        self,
        mesh: Mesh,
        senders: Iterable[tuple[Link, LinkSenderTask]],
        receivers: Iterable[tuple[Link, LinkReceiverTask]],
        now: float,
    ) -> None:
        """To be called once a second."""
        out, seen = {}, []
        back = {
            link.sender: task.machine.measured
            for link, task in receivers
            if task.machine.measured is not None
        }
        for link, task in senders:
            if task.machine.measured is not None:
                out[link.receiver] = task.machine.measured
            in_session = task.machine.heard_at is not None and not task.gap
            acked = task.machine.counters.acked if in_session else None
            seen.append(LinkActivity(link.name, acked, task.machine.receiver_has))
            place = task.machine.place
            self._movements[link.name].note(place and place.name, task.lag.messages, now)
        if self._canaries.look(seen, now):
            canary = self.ask()
            if canary is not None:
                self._canaries.asked(canary, now)
        for neighbour in {*out, *back}:
            difference = clock_difference_ms(out.get(neighbour), back.get(neighbour))
            if difference is not None and neighbour in mesh.sites:
                self.clock_differences_ms[mesh.sites[neighbour].cluster_id] = difference

    def state_of(self, link: Link, task: LinkSenderTask, now: float) -> tuple[ReportedState, str]:
        """Of a link that nobody holds back, and why it is not `running`."""
        machine, lag = task.machine, task.lag
        facts = LinkFacts(
            gap=task.gap,
            reason=machine.reason,
            in_session=machine.heard_at is not None,
            heard_s=None if machine.heard_at is None else now - machine.heard_at,
            is_blocked=task.blocked,
            lag_messages=lag.messages,
            lag_s=lag.seconds,
            # By its rate it may take long over one batch, and nothing is wrong with that.
            unmoved_s=0.0 if task.held_back else self._movements[link.name].unmoved_s(now),
            unanswered_s=0.0 if task.held_back else self._canaries.unanswered_s(link.name, now),
        )
        return reported_state(facts, link.receiver)
