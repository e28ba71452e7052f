"""What is looked at once a second of all links of one site, to tell how they and the clocks are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from federation.mesh import Link, Mesh
from relay.links.echo import clock_difference_ms
from relay.links.link_state import LinkFacts, Movement, ToldState, told_state
from relay.links.receiver_task import LinkReceiverTask
from relay.links.sender_task import LinkSenderTask


class LinkWatch:
    """One site's."""

    def __init__(self) -> None:
        self.clock_differences_ms: dict[str, int] = {}
        """A neighbour's clock minus ours, by cluster ID, once it was measured; told anew in this
        same object."""
        self._movements: defaultdict[str, Movement] = defaultdict(Movement)
        """Of each link out of here, by its name."""

    def look(
        self,
        mesh: Mesh,
        senders: Iterable[tuple[Link, LinkSenderTask]],
        receivers: Iterable[tuple[Link, LinkReceiverTask]],
        now: float,
    ) -> None:
        """To be called once a second."""
        out, back = {}, {link.sender: task.machine.measured for link, task in receivers}
        for link, task in senders:
            out[link.receiver] = task.machine.measured
            place = task.machine.place
            self._movements[link.name].note(place and place.name, task.lag.messages, now)
        for neighbour in {*out, *back}:
            difference = clock_difference_ms(out.get(neighbour), back.get(neighbour))
            if difference is not None and neighbour in mesh.sites:
                self.clock_differences_ms[mesh.sites[neighbour].cluster_id] = difference

    def state_of(self, link: Link, task: LinkSenderTask, now: float) -> tuple[ToldState, str]:
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
            unmoved_s=self._movements[link.name].unmoved_s(now),
        )
        return told_state(facts, link.receiver)
