"""Applying a mesh: making the declarations of `provision` exist at the brokers, or previewing that.

Nothing is deleted, and nothing changed that cannot be changed in place: the report names it with a
remedy. Only the binding of an egress queue whose exchange or key was taken out of the file is
removed: unbound, the queue drains; bound, it would fill until the disk is full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from aio_pika.exceptions import AMQPException

from federation.brokers.addresses import AddressBook, ManagementAddress
from federation.brokers.amqp_declare import CONNECT_TIMEOUT_S, Declarer, declaring
from federation.brokers.applied import Applied, read_applied, write_applied
from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from federation.brokers.apply_rights import (
    apply_guests,
    apply_policies,
    apply_users,
    by_hand,
    guests_left_over,
    policy_in_force,
    unchecked,
)
from federation.brokers.cluster_arguments import broker_nodes, on_cluster, replicas_of
from federation.brokers.hash_probe import (
    ENABLE_HASH,
    KNOWN_HASH,
    MEND_HASH,
    NO_HASH,
    OTHER_HASH,
    PROBE_WITHIN_S,
    has_partitions,
    lacks_hash,
    probe_hash,
)
from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.one_cluster import ONE_CLUSTER, node_answers, several_clusters
from federation.brokers.partition_changes import (
    OTHER_NAME,
    WAY,
    PartitionChange,
    partition_changes,
    sites_with_slots,
)
from federation.brokers.provision import (
    BindingDeclaration,
    Declarations,
    PolicyDeclaration,
    QueueDeclaration,
    declarations,
)
from federation.brokers.users import (
    UserDeclaration,
    guests,
    leases,
    put_aside_queues,
)
from federation.mesh import Mesh
from federation.names import Names, slot_names
from federation.partitions import HASH_EXCHANGE
from federation.wording import counted, few


async def apply_site(book: AddressBook, site: str, state: Path) -> SiteReport:
    """Make one site's broker as the mesh declares. `state` is the folder with the record of the
    last apply.

    Faults at the broker are in the report. Before any change BrokerNotKnown, PasswordMissing or
    AppliedRecordBroken may be raised.
    """
    declared = declarations(book.mesh, site, book.credentials, book.formerly_delivered(site))
    management, applying = book.management(site), _Applying(book, declared, state)
    if not await applying.is_one_cluster(management):
        return applying.report
    if management is None:
        vhost = book.administrator(site).vhost
        why = "the mesh file has no `management:` for this site"
        for policy in declared.policies:
            applying.add(unchecked("policy", policy.name, why, by_hand(policy, vhost)))
        applying.add(*await apply_guests(book, site, None, why))
        await applying.over_amqp(None)
        return applying.report
    async with ManagementApi(management) as api:
        # Users first: a neighbour waits for its user, no node waits for an exchange.
        applying.add(*await apply_users(api, declared.users))
        applying.add(*await apply_guests(book, site, api))
        names, control = Names(book.mesh.name), book.control(site)
        known = (*declared.users, *guests(book.mesh, site).values())
        applying.add(*await guests_left_over(api, known, names, control))
        applying.add(*await apply_policies(api, declared.policies))
        await applying.over_amqp(api)
        for policy in declared.policies:
            for slot in slot_names(book.mesh, site):
                applying.add(*await policy_in_force(api, slot.log, policy))
    return applying.report


class _Applying:
    """One apply of one site. Items are collected as found, so that a cut half-way loses none."""

    def __init__(self, book: AddressBook, declared: Declarations, state: Path) -> None:
        self._mesh = book.mesh
        self._declared = declared
        self._address = book.administrator(declared.site)
        self._state = state
        self._names = Names(book.mesh.name)
        self._former = read_applied(state, book.mesh.name, declared.site)
        self._hash_fault: tuple[str, str] | None = None
        self._items: list[Item] = []

    @property
    def report(self) -> SiteReport:
        return SiteReport(self._declared.site, tuple(self._items))

    def add(self, *items: Item) -> None:
        self._items.extend(items)

    async def is_one_cluster(self, management: ManagementAddress | None) -> bool:
        """Return True if the addresses of a list lead to one cluster, as far as they answer; a
        single address is not tested.
        """
        if len(self._address.endpoints) < 2 and (management is None or len(management.urls) < 2):
            return True
        answers = await node_answers(self._address, management, self._names.prefix)
        if wrong := several_clusters(answers):
            item = Item("broker", self._address.where, ItemOutcome.FAILED, wrong, ONE_CLUSTER)
            self.add(item)
            return False
        if any(not answer.why_not for answer in answers):
            mend = "start that node and apply again: its cluster has to be this one"
            silent = [answer for answer in answers if answer.why_not]
            self.add(
                *(unchecked("broker", answer.address, answer.why_not, mend) for answer in silent)
            )
        return True

    async def over_amqp(self, api: ManagementApi | None) -> None:
        """Declare exchanges, queues and bindings."""
        here = self._mesh.sites[self._declared.site]
        members = replicas_of(here, await broker_nodes(here, api))
        is_cluster = members is not None or here.is_cluster
        try:
            self._hash_fault = await self._examined_hash()
            async with declaring(self._address) as declarer:
                for exchange in self._declared.exchanges:
                    if self._hash_fault and exchange.type == HASH_EXCHANGE:
                        fault = ItemOutcome.FAILED, *self._hash_fault
                        self.add(Item("exchange", exchange.name, *fault))
                    else:
                        self.add(await declarer.exchange(exchange))
                for queue in self._declared.queues:
                    wanted = on_cluster(queue, members) if is_cluster else queue
                    self.add(await declarer.queue(wanted))
                await self._bindings(declarer, api)
        except (AMQPException, OSError) as error:
            reason = str(error) or f"no answer in {CONNECT_TIMEOUT_S:.0f} s"
            self.add(
                Item(
                    "broker",
                    self._address.public_uri,
                    ItemOutcome.FAILED,
                    f"{type(error).__name__}: {reason}",
                    "check that it runs, its address, password and virtual host; apply again",
                )
            )

    async def _examined_hash(self) -> tuple[str, str] | None:
        """Return what is wrong with the hash by which the broker spreads messages over partitions,
        with its remedy; None if nothing is, or the site has no partitions.
        """
        if not has_partitions(self._mesh, self._declared.site):
            return None
        try:
            found = await probe_hash(self._address, self._names.prefix)
        except (AMQPException, OSError) as error:
            if lacks_hash(error):
                return NO_HASH, ENABLE_HASH
            why = str(error) or f"no answer in {PROBE_WITHIN_S:.0f} s"
            return f"the broker's hash could not be probed: {why}", "apply again"
        return None if found == KNOWN_HASH else (OTHER_HASH, MEND_HASH)

    async def _bindings(self, declarer: Declarer, api: ManagementApi | None) -> None:
        listed = await self._present(api)
        # Without a list, binding again does no harm, and the record shows new bindings.
        present = listed if listed is not None else (self._former or Applied())
        known = present.queues | (self._former or Applied()).queues
        if listed is None and self._former is None:
            await self._unbind_former_ways(declarer)
        kept = await self._kept_partitions(declarer, api, present.bindings)
        bound = await self._bind(declarer, present.bindings, kept, is_sure=listed is not None)
        unwanted = {
            binding
            for binding in present.bindings.difference(self._declared.bindings)
            if not self._stays(binding, kept)
        }
        bound |= await self._unbind(declarer, unwanted)
        queues = await self._retired(declarer, known | {binding.queue for binding in unwanted})
        site, mesh = self._declared.site, self._mesh
        bound |= {binding for binding in present.bindings if self._stays(binding, kept)}
        queues |= {binding.queue for binding in bound if not binding.to_exchange}
        applied = Applied(frozenset(bound), frozenset(queues))
        write_applied(self._state, mesh.name, site, mesh.revision, applied)

    def _stays(self, binding: BindingDeclaration, kept: Collection[PartitionChange]) -> bool:
        return any(change.concerns(self._names, binding) for change in kept)

    async def _unbind_former_ways(self, declarer: Declarer) -> None:
        """Unbind exchanges with partitions from the queues that they had without, where nobody
        knows what is bound: each message would go both ways.
        """
        for exchange in self._mesh.exchanges.values():
            if exchange.partitions > 1 and exchange.leaves(self._declared.site):
                egress = self._names.egress(exchange.name)
                for key in exchange.keys:
                    item = await declarer.unbind(BindingDeclaration(exchange.name, egress, key))
                    if item.outcome is ItemOutcome.FAILED:
                        self.add(item)

    async def _kept_partitions(
        self,
        declarer: Declarer,
        api: ManagementApi | None,
        present: Collection[BindingDeclaration],
    ) -> list[PartitionChange]:
        """Report changes of partitions that cannot be made now; return these, of which the broker
        is to keep all bindings.
        """
        kept = []
        for change in partition_changes(self._mesh, self._declared.site, present):
            if self._hash_fault:
                kept.append(change)  # the fault is reported already
                continue
            if sites := sites_with_slots(self._mesh, change):
                why, mend = f"cut into several slots: {few(sites)}", OTHER_NAME
            else:
                wanted = self._names.egress_queues(self._mesh.exchanges[change.exchange])
                queues = change.queues.union(wanted)
                waiting = sum([await _waiting(declarer, api, queue) for queue in sorted(queues)])
                if not waiting:
                    continue
                why, mend = f"{counted(waiting, 'message')} in its egress queues", WAY
            kept.append(change)
            self.add(
                Item("partitions", change.exchange, ItemOutcome.DIFFERS, f"{change}: {why}", mend)
            )
        return kept

    async def _bind(
        self,
        declarer: Declarer,
        present: Collection[BindingDeclaration],
        kept: Collection[PartitionChange],
        *,
        is_sure: bool,
    ) -> set[BindingDeclaration]:
        """Create the declared bindings; return those that exist afterwards."""
        failed = {(i.kind, i.name) for i in self._items if i.outcome is ItemOutcome.FAILED}
        bound = set()
        for binding in self._declared.bindings:
            kinds = ("exchange", binding.exchange), ("queue", binding.queue)
            if failed & {*kinds, ("exchange", binding.queue)} or self._stays(binding, kept):
                if binding in present:
                    bound.add(binding)
                continue  # reported already
            item = Item("binding", str(binding), ItemOutcome.THERE)
            if not is_sure or binding not in present:
                item = await declarer.bind(binding)
                if item.outcome is ItemOutcome.CREATED and binding in present:
                    item = replace(item, outcome=ItemOutcome.THERE)
            self.add(item)
            if item.outcome is not ItemOutcome.FAILED:
                bound.add(binding)
        return bound

    async def _unbind(
        self, declarer: Declarer, unwanted: Collection[BindingDeclaration]
    ) -> set[BindingDeclaration]:
        """Remove bindings that the file no longer has; return those that still exist afterwards."""
        left = set()
        for binding in sorted(unwanted, key=str):
            if self._is_own(binding):
                item = await declarer.unbind(binding)
                if item.outcome is not ItemOutcome.UNBOUND:
                    left.add(binding)
            else:
                # A stranger's: its messages bear the name of an exchange that no node knows.
                item = Item(
                    "binding",
                    str(binding),
                    ItemOutcome.DIFFERS,
                    "somebody else bound an egress queue of the mesh",
                    "unbind it, and bind that exchange to one of the mesh instead",
                )
            self.add(item)
        return left

    def _is_own(self, binding: BindingDeclaration) -> bool:
        """Return True if an `apply` has made the binding of an egress queue."""
        ways = self._names.egress(binding.exchange), self._names.partitions(binding.exchange)
        return binding.queue in ways or binding.exchange.startswith(self._names.partitions_prefix)

    async def _retired(self, declarer: Declarer, known: Collection[str]) -> set[str]:
        """Report messages in egress queues that the file no longer needs; return the queues that
        exist.
        """
        wanted = {queue.name for queue in self._declared.queues}
        there = set()
        for queue in sorted(set(known) - wanted):
            waiting = await declarer.waiting(queue)
            if waiting is not None:
                # Recorded even when no message is ready: a node may have some in hand.
                there.add(queue)
            if waiting:
                self.add(
                    Item(
                        "queue",
                        queue,
                        ItemOutcome.LEFT,
                        f"{counted(waiting, 'message')} in it, which no exchange of the file fills",
                        "the site's node goes on sending them, and nothing new comes in; when none "
                        "wait, delete the queue if the exchange is not to come back",
                    )
                )
        return there

    async def _present(self, api: ManagementApi | None) -> Applied | None:
        """Return this mesh's egress queues and their bindings, or None if they cannot be listed."""
        why: ManagementError | str = "the mesh file has no `management:` for this site"
        if api is not None:
            try:
                return await egress_present(api, self._mesh, self._declared.site)
            except ManagementError as error:
                why = error
        if self._former is None:
            self.add(
                unchecked(
                    "binding",
                    f"{self._names.egress_prefix}*",
                    why,
                    "unbind egress queues of exchanges that are no longer in the file",
                )
            )
        return None


async def _waiting(declarer: Declarer, api: ManagementApi | None, queue: str) -> int:
    """Return the number of messages in a queue; with the management API also of those that a node
    has in hand, as of some seconds ago. Raises ManagementError.
    """
    ready = await declarer.waiting(queue)
    if ready is None or api is None:
        return ready or 0
    found = await api.get("queues", api.vhost, queue) or {}
    return ready + int(found.get("messages_unacknowledged") or 0)


async def egress_present(api: ManagementApi, mesh: Mesh, site: str) -> Applied:
    """Return the mesh's egress queues and their bindings, without those of the default exchange; of
    the queues of what is put aside, and of leases, the bindings of Isthmus. Raises ManagementError.
    """
    found = await api.get("bindings", api.vhost) or []
    queues = await api.get("queues", api.vhost, columns="name") or []
    slots = slot_names(mesh, site)
    own = {queue for slot in slots for queue in put_aside_queues(slot)} | {*leases(mesh, site)}
    prefix, partitions = Names(mesh.name).egress_prefix, Names(mesh.name).partitions_prefix
    bindings = (
        BindingDeclaration(
            binding["source"],
            binding["destination"],
            binding["routing_key"],
            to_exchange=binding["destination_type"] == "exchange",
        )
        for binding in found
        if binding["source"]
    )
    return Applied(
        frozenset(
            binding
            for binding in bindings
            if binding.queue.startswith(partitions if binding.to_exchange else prefix)
            or (binding.queue in own and binding.exchange == binding.queue)
        ),
        frozenset(queue["name"] for queue in queues if queue["name"].startswith(prefix)),
    )


class NoManagement(Exception):
    """The site has no management API to ask; the text names the reason."""


async def preview_site(book: AddressBook, site: str) -> list[str]:
    """Return the changes that `apply` would make at a site, read from its management API: `+`
    missing, `~` to be changed, `-` to be unbound, `!` different and beyond what apply can change.
    Empty if all is as declared.

    Raises NoManagement, ManagementError, AddressError, PasswordMissing.
    """
    management = book.management(site)
    if management is None:
        raise NoManagement("the mesh file has no `management:` for this site")
    declared = declarations(book.mesh, site, book.credentials, book.formerly_delivered(site))
    async with ManagementApi(management) as api:
        return [
            *await _changed_users(api, (*declared.users, *guests(book.mesh, site).values())),
            *await _exchanges_and_queues(api, declared),
            *await _changed_bindings(api, declared, book.mesh),
            *[line for policy in declared.policies for line in await _changed_policy(api, policy)],
        ]


async def _exchanges_and_queues(api: ManagementApi, declared: Declarations) -> list[str]:
    exchanges = _by_name(await api.get("exchanges", api.vhost, columns="name,type"))
    queues = _by_name(await api.get("queues", api.vhost, columns="name,arguments"))
    lines = []
    for exchange in declared.exchanges:
        found = exchanges.get(exchange.name)
        if found is None:
            lines.append(f"+ exchange {exchange.name}")
        elif found["type"] != exchange.type:
            lines.append(f"! exchange {exchange.name}: is {found['type']}, not {exchange.type}")
    for queue in declared.queues:
        if queue.name not in queues:
            lines.append(f"+ queue {queue.name}")
        else:
            lines += _otherwise(queue, queues[queue.name].get("arguments") or {})
    return lines


def _otherwise(queue: QueueDeclaration, there: dict[str, Any]) -> Iterator[str]:
    for key, wanted in queue.arguments.items():
        # A queue without a type is a classic one.
        found = there.get(key, "classic" if key == "x-queue-type" else None)
        if found != wanted:
            yield f"! queue {queue.name}: {key} is {found}, not {wanted}"


async def _changed_bindings(api: ManagementApi, declared: Declarations, mesh: Mesh) -> list[str]:
    there = (await egress_present(api, mesh, declared.site)).bindings
    wanted = frozenset(declared.bindings)
    missing = [f"+ binding {binding}" for binding in declared.bindings if binding not in there]
    missing += [
        f"! partitions {change.exchange}: {change}: cut into several slots: {few(sites)}"
        if (sites := sites_with_slots(mesh, change))
        else f"~ partitions {change.exchange}: {change}, while no message of it waits"
        for change in partition_changes(mesh, declared.site, there)
        if change.queues
    ]
    return missing + sorted(f"- binding {binding}" for binding in there - wanted)


async def _changed_policy(api: ManagementApi, policy: PolicyDeclaration) -> list[str]:
    found = await api.get("policies", api.vhost, policy.name)
    if found is None:
        return [f"+ policy {policy.name}"]
    return [
        f"~ policy {policy.name}: {key} {found.get(key)} -> {value}"
        for key, value in policy.body.items()
        if found.get(key) != value
    ]


async def _changed_users(api: ManagementApi, users: tuple[UserDeclaration, ...]) -> list[str]:
    """Preview users: those of private brokers, and those of other sites' link ends."""
    lines = []
    for user in users:
        try:
            if await api.get("users", user.name) is None:
                lines.append(f"+ user {user.name}")
            found = await api.get("permissions", api.vhost, user.name)
        except ManagementError as error:
            return [f"? users: {error}"]
        if found is None:
            lines.append(f"+ rights {user.name}")
        elif any(found.get(key) != value for key, value in user.rights.items()):
            lines.append(f"~ rights {user.name}")
    return lines


def _by_name(found: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found or ()}
