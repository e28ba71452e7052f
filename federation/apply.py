"""Makes what provision declares exist at the brokers, and tells what it found.

Never deletes anything, and never changes what cannot be changed in place: that is reported, with
what to do. The one thing it takes away is the binding of an egress queue whose exchange or key
was taken out of the file: unbound, the queue drains; bound, it would fill till the disk is full.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aio_pika.exceptions import AMQPException

from federation.addresses import AddressBook
from federation.amqp_declare import CONNECT_TIMEOUT_S, Declarer, declaring
from federation.applied import read_applied, write_applied
from federation.apply_report import Item, Outcome, SiteReport
from federation.apply_rights import (
    apply_policies,
    apply_users,
    by_hand,
    policy_in_force,
    unchecked,
)
from federation.management import ManagementApi, ManagementError
from federation.names import Names
from federation.provision import BindingDeclaration, Declarations, declarations


async def apply_site(book: AddressBook, site: str, state: Path) -> SiteReport:
    """Make one site's broker as the mesh says. `state` is where the last apply is remembered.

    All that goes wrong at the broker is in the report. Before anything is done it may raise
    BrokerNotKnown, PasswordMissing or AppliedRecordBroken.
    """
    declared = declarations(book.mesh, site, book.credentials)
    management, applying = book.management(site), _Applying(book, declared, state)
    if management is None:
        vhost = book.node(site).vhost
        why = "the mesh file has no `management:` for this site"
        for policy in declared.policies:
            applying.say(unchecked("policy", policy.name, why, by_hand(policy, vhost)))
        await applying.over_amqp(None)
        return applying.report
    async with ManagementApi(management) as api:
        # Users first: a neighbour waits for its user, nobody waits for an exchange.
        applying.say(*await apply_users(api, declared.users))
        applying.say(*await apply_policies(api, declared.policies))
        await applying.over_amqp(api)
        for policy in declared.policies:
            applying.say(*await policy_in_force(api, Names(book.mesh.name).log, policy))
    return applying.report


class _Applying:
    """One apply of one site: collects what was found, so that a cut half-way loses no word."""

    def __init__(self, book: AddressBook, declared: Declarations, state: Path) -> None:
        self._mesh = book.mesh
        self._declared = declared
        self._address = book.node(declared.site)
        self._state = state
        self._names = Names(book.mesh.name)
        self._former = read_applied(state, book.mesh.name, declared.site)
        self._items: list[Item] = []

    @property
    def report(self) -> SiteReport:
        return SiteReport(self._declared.site, tuple(self._items))

    def say(self, *items: Item) -> None:
        self._items.extend(items)

    async def over_amqp(self, api: ManagementApi | None) -> None:
        """Exchanges, queues and bindings."""
        try:
            async with declaring(self._address) as declarer:
                for exchange in self._declared.exchanges:
                    self.say(await declarer.exchange(exchange))
                for queue in self._declared.queues:
                    self.say(await declarer.queue(queue))
                await self._bindings(declarer, api)
        except (AMQPException, OSError) as error:
            reason = str(error) or f"no answer in {CONNECT_TIMEOUT_S:.0f} s"
            self.say(
                Item(
                    "broker",
                    self._address.public_uri,
                    Outcome.FAILED,
                    f"{type(error).__name__}: {reason}",
                    "check that it runs, its address, password and virtual host; apply again",
                )
            )

    async def _bindings(self, declarer: Declarer, api: ManagementApi | None) -> None:
        wanted = dict.fromkeys(self._declared.bindings)
        listed = await self._listed(api)
        # Without a list, binding again does no harm, and the record tells what is new.
        present = listed if listed is not None else (self._former or set())
        absent = {(i.kind, i.name) for i in self._items if i.outcome is Outcome.FAILED}
        bound: set[BindingDeclaration] = set()
        for binding in wanted:
            if listed is not None and binding in listed:
                item = Item("binding", str(binding), Outcome.THERE)
            elif absent & {("exchange", binding.exchange), ("queue", binding.queue)}:
                continue  # said already
            else:
                item = await declarer.bind(binding)
                if binding in present and item.outcome is Outcome.CREATED:
                    item = dataclasses.replace(item, outcome=Outcome.THERE)
            self.say(item)
            if item.outcome is not Outcome.FAILED:
                bound.add(binding)
        for binding in sorted(present - set(wanted), key=str):
            if not await self._unbind(declarer, binding):
                bound.add(binding)
        write_applied(self._state, self._mesh.name, self._declared.site, self._mesh.revision, bound)

    async def _unbind(self, declarer: Declarer, binding: BindingDeclaration) -> bool:
        if self._names.egress(binding.exchange) != binding.queue:
            self.say(
                Item(
                    "binding",
                    str(binding),
                    Outcome.DIFFERS,
                    "somebody else bound an egress queue of the mesh",
                    "unbind it: bind to the mesh's exchange instead, or name this one in the file",
                )
            )
            return True
        item = await declarer.unbind(binding)
        waiting = await declarer.waiting(binding.queue)
        if item.outcome is Outcome.UNBOUND and waiting:
            item = dataclasses.replace(item, detail=f"{waiting} messages wait and still go out")
        self.say(item)
        return item.outcome is Outcome.UNBOUND

    async def _listed(self, api: ManagementApi | None) -> set[BindingDeclaration] | None:
        """All bindings of this mesh's egress queues, or None if nobody can list them."""
        why: ManagementError | str = "the mesh file has no `management:` for this site"
        if api is not None:
            try:
                return await listed_bindings(api, self._names.egress_prefix)
            except ManagementError as error:
                why = error
        if self._former is None:
            self.say(
                unchecked(
                    "binding",
                    f"{self._names.egress_prefix}*",
                    why,
                    "unbind egress queues of exchanges that are no longer in the file",
                )
            )
        return None


async def listed_bindings(api: ManagementApi, queue_prefix: str) -> set[BindingDeclaration]:
    """The bindings of queues whose names begin so, the default exchange's left out.
    Raises ManagementError.
    """
    found = await api.get("bindings", api.vhost) or []
    return {
        BindingDeclaration(one["source"], one["destination"], one["routing_key"])
        for one in found
        if one["source"]
        and one["destination_type"] == "queue"
        and one["destination"].startswith(queue_prefix)
    }
