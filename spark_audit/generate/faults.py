"""Faults to plant into a made world, one function a kind, with the findings that an audit must
make.

Each fault takes a batch of its own. The first ones are deceptions: something else seems to explain
them, which an audit must not believe.
"""

from __future__ import annotations

from dataclasses import replace

from federation.mesh import Begins
from relay.ledger.rows import CONFLICT, REDELIVERED, Event, LedgerRow, Outcome, Stage
from spark_audit.generate.planting import (
    Plant,
    PlantedFinding,
    Planting,
    cut,
    in_conflict,
    leak_at,
    repeat,
    set_outcome,
    set_void,
    two_of,
    without,
)
from spark_audit.generate.repairs import repair_refused, repaired_altered, repaired_wrongly
from spark_audit.generate.reslotting import leaked_around, lost_around
from spark_audit.generate.world import FRAGMENT_KIND, MadeRow


def lost_in_conflict(planting: Planting) -> None:
    """Plant the loss of the second of two messages under one identity."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def suppressed_in_conflict(planting: Planting) -> None:
    """Plant a barrier that took the second of two messages under one identity for a duplicate."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    set_outcome(batch.delivered[site], entry, Outcome.DUPLICATE)
    planting.suppressed_at.add(site)
    planting.found("lost", batch, entry, site)


def leaked_in_conflict(planting: Planting) -> None:
    """Plant a second delivery of the second of two messages under one identity."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    whole = batch.delivered[site]
    again = cut(whole, entry, entry + 1)
    set_outcome(again, 0, Outcome.DELIVERED | CONFLICT)
    planting.add(site, again, whole)
    planting.found("leaked duplicate", batch, entry, site)


def void_at_one_site(planting: Planting) -> None:
    """Plant a good batch that one site took for void."""
    batch, _, site = planting.pick()
    set_void(planting, site, batch.delivered[site])
    planting.found_all("lost", batch, site)


def own_elsewhere(planting: Planting) -> None:
    """Plant a site that took another's message for its own, and did not deliver it."""
    batch, entry, site = planting.pick()
    set_outcome(batch.delivered[site], entry, Outcome.OWN)
    planting.found("lost", batch, entry, site)


def begun_then_lost(planting: Planting) -> None:
    """Plant a packer's death within a message of four pieces, and the loss, at one site, of the
    whole message that its successor packed. The message is not the first of its batch.
    """
    batch, _, site = planting.pick()
    entry = batch.packed.row.count - 1
    rows = planting.world.stage(planting.origin(batch), Stage.PACKED)
    before = rows.index(batch.packed)
    dead = planting.chance.randbytes(8)
    at_ms = batch.packed.row.first_published_ms - 1000
    for piece in range(2):
        begun = replace(
            batch.packed.row,
            recorded_ms=at_ms + 1,
            kind=FRAGMENT_KIND,
            incarnation=dead,
            sequence=piece,
            incarnation_sequence=piece + 1,
            fragment=piece,
            pieces=4,
            first_published_ms=at_ms,
            last_published_ms=at_ms,
            count=1,
            identities=batch.identity(entry),
            outcomes=bytes([Outcome.SENT]),
            published=bytes(4),
        )
        rows.insert(before + piece, MadeRow(begun))
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def never_from_the_start(planting: Planting) -> None:
    """Plant a batch from before a site joined that the site, beginning at the start, did not
    deliver although a link brought it.
    """
    batch, _, site = planting.pick()
    world = planting.world
    mesh = world.mesh
    cluster = world.cluster(site)
    joined = replace(mesh.sites[site], begins=Begins.START)
    world.mesh = replace(mesh, sites={**mesh.sites, site: joined})
    earlier = replace(
        mesh,
        revision=f"{mesh.revision}-without-{site}",
        sites={name: one for name, one in mesh.sites.items() if name != site},
        links=tuple(link for link in mesh.links if site not in (link.sender, link.receiver)),
        cluster_ids={key: name for key, name in mesh.cluster_ids.items() if key != cluster},
    )
    world.earlier.append(earlier)
    for made in (batch.packed, batch.own, *batch.delivered.values()):
        made.change(revision=earlier.revision)
    planting.take_out(site, batch.delivered[site])
    planting.found_all("lost", batch, site)


DECEPTIONS: dict[str, Plant] = {
    "lost-in-conflict": lost_in_conflict,
    "suppressed-in-conflict": suppressed_in_conflict,
    "leaked-in-conflict": leaked_in_conflict,
    "void-at-one-site": void_at_one_site,
    "own-elsewhere": own_elsewhere,
    "begun-then-lost": begun_then_lost,
    "never-from-the-start": never_from_the_start,
}
"""Kinds that look explained; each is a finding."""


LATE_MS = 7 * 3_600_000


def lost(planting: Planting) -> None:
    """Plant the loss of one message at a site."""
    batch, entry, site = planting.pick()
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def lost_batch(planting: Planting) -> None:
    """Plant a whole batch that a link skipped."""
    batch, _, site = planting.pick()
    planting.take_out(site, batch.delivered[site])
    planting.found_all("lost", batch, site)


def lost_in_gap(planting: Planting) -> None:
    """Plant a batch that the site's log dropped before the delivery; a person accepted the gap."""
    batch, _, site = planting.pick()
    row = batch.delivered[site].row
    gap = LedgerRow(
        Stage.DELIVERED,
        row.recorded_ms,
        event=Event.GAP,
        origin=row.origin,
        exchange=row.exchange,
        reason="the log begins behind it",
    )
    accepted = replace(gap, event=Event.GAP_ACCEPTED, reason="accepted by ann@host at noon: gone")
    planting.add(site, MadeRow(accepted), batch.delivered[site])
    planting.add(site, MadeRow(gap), batch.delivered[site])
    planting.take_out(site, batch.delivered[site])
    planting.found_all("lost", batch, site)


def lost_as_duplicate(planting: Planting) -> None:
    """Plant a barrier that suppressed an unseen message."""
    batch, entry, site = planting.pick()
    set_outcome(batch.delivered[site], entry, Outcome.DUPLICATE)
    planting.suppressed_at.add(site)
    planting.found("lost", batch, entry, site)


def leaked_within_batch(planting: Planting) -> None:
    """Plant a message delivered twice from one batch."""
    batch, entry, site = planting.pick()
    whole = batch.delivered[site]
    planting.add(site, cut(whole, entry, entry + 1), whole)
    planting.found("leaked duplicate", batch, entry, site)


def leaked_across_batches(planting: Planting) -> None:
    """Plant a message packed twice by its origin, and delivered twice at one site."""
    first, second = two_of(planting, one_origin=True)
    entry = planting.chance.randrange(first.packed.row.count)
    place = repeat(planting, first, second, entry)
    leak_at(planting, first, entry, second, place, planting.destination(second))


def leaked_across_origins(planting: Planting) -> None:
    """Plant a message published at two sites, and delivered twice at a third."""
    first, second = two_of(planting, one_origin=False)
    entry = planting.chance.randrange(first.packed.row.count)
    place = repeat(planting, first, second, entry)
    origins = {planting.origin(first), planting.origin(second)}
    # Each origin has its own message; its barrier stops the other's.
    first_at = planting.origin(second)
    set_outcome(first.delivered[first_at], entry, Outcome.DUPLICATE)
    leak = planting.chance.choice(sorted(set(second.delivered) - origins))
    for site, made in second.delivered.items():
        if site == leak:
            planting.found("leaked duplicate", second, second.identity(place), site)
        else:
            set_outcome(made, place, Outcome.DUPLICATE)
    planting.planted.explained["suppressed"] += len(second.delivered)


def leaked_across_nodes(planting: Planting) -> None:
    """Plant two nodes of a site, each with a state folder, that both deliver a batch."""
    batch = planting.batch()
    site = planting.chance.choice(sorted(set(batch.delivered) - planting.suppressed_at))
    whole = batch.delivered[site]
    row = MadeRow(whole.row)
    planting.add(site, row, whole)
    planting.world.state_of[id(row)] = planting.chance.randbytes(16).hex()
    for entry in range(whole.row.count):
        planting.found("leaked duplicate", batch, entry, site)


def loss_and_duplicate(planting: Planting) -> None:
    """Plant a loss and a duplicate in one batch and minute, so that counts balance."""
    batch, entry, site = planting.pick()
    entry = min(entry, batch.packed.row.count - 2)  # else the duplicate is out of order, too
    other = entry + 1
    row = batch.delivered[site].row
    identities = bytearray(row.identities)
    identities[16 * entry : 16 * entry + 16] = batch.identity(other)
    contents = bytearray(row.contents)
    contents[8 * entry : 8 * entry + 8] = row.contents[8 * other : 8 * other + 8]
    batch.delivered[site].change(identities=bytes(identities), contents=bytes(contents))
    planting.found("lost", batch, entry, site)
    planting.found("leaked duplicate", batch, other, site)


def forged(planting: Planting) -> None:
    """Plant the delivery of a message that nobody packed."""
    batch, _, site = planting.pick()
    whole = batch.delivered[site]
    forgery = cut(whole, 0, 1)
    identity = planting.chance.randbytes(16)
    forgery.change(
        identities=identity,
        incarnation=planting.chance.randbytes(8),
        sequence=0,
    )
    planting.add(site, forgery, whole)
    planting.found("unexpected", batch, identity, site)


def back_at_origin(planting: Planting) -> None:
    """Plant a site's own message, delivered to the site."""
    batch, entry, _ = planting.pick()
    origin = planting.origin(batch)
    row = cut(batch.own, entry, entry + 1)
    set_outcome(row, 0, Outcome.DELIVERED)
    planting.add(origin, row, batch.own)
    planting.found("unexpected", batch, entry, origin)


def wrong_site(planting: Planting) -> None:
    """Plant a message delivered at a site that it did not address."""
    batch = planting.batch()
    sites = sorted(batch.delivered)
    wrong = planting.chance.choice(sites)
    others = tuple(sorted(planting.world.cluster(site) for site in sites if site != wrong))
    for made in (batch.packed, batch.own, *batch.delivered.values()):
        made.change(destinations=others)
    planting.found_all("unexpected", batch, wrong)


def altered(planting: Planting) -> None:
    """Plant other content under the same identity."""
    batch, entry, site = planting.pick()
    made = batch.delivered[site]
    contents = bytearray(made.row.contents)
    contents[8 * entry] ^= 1
    made.change(contents=bytes(contents))
    planting.found("altered", batch, entry, site)


def reordered(planting: Planting) -> None:
    """Plant two messages of a batch in the wrong order."""
    batch, entry, site = planting.pick()
    made = batch.delivered[site]
    first = min(entry, made.row.count - 2)
    columns = {}
    for name, size in (("identities", 16), ("contents", 8), ("published", 4)):
        whole = getattr(made.row, name)
        a, b, c = size * first, size * (first + 1), size * (first + 2)
        columns[name] = whole[:a] + whole[b:c] + whole[a:b] + whole[c:]
    made.change(**columns)
    planting.found("reordered", batch, first, site)


def reordered_batches(planting: Planting) -> None:
    """Plant two batches of a flow in the wrong order."""
    batch, _, site = planting.pick()
    world = planting.world
    rows = world.stage(site, Stage.DELIVERED)
    made = batch.delivered[site]
    era = world.era(site, made.row.recorded_ms)
    free = {id(one.delivered.get(site)) for one in planting.free}
    at = rows.index(made)
    flow = [
        index
        for index, other in enumerate(rows)
        if other.row.origin == made.row.origin
        and other.row.exchange == made.row.exchange
        and other.row.event is Event.BATCH
        and world.era(site, other.row.recorded_ms) == era
    ]
    place = flow.index(at)
    if place + 1 < len(flow) and id(rows[flow[place + 1]]) in free:
        early, late = at, flow[place + 1]
    else:
        planting.free.append(batch)
        planting.touched.remove(batch)
        reordered_batches(planting)
        return
    neighbour = next(one for one in planting.free if one.delivered.get(site) is rows[late])
    planting.take(neighbour)
    rows[early], rows[late] = rows[late], rows[early]
    for entry in range(made.row.count):
        planting.found("reordered", batch, entry, site)


def looped(planting: Planting) -> None:
    """Plant a batch that had been at a site before."""
    batch, _, site = planting.pick()
    made = batch.delivered[site]
    made.change(path=(*made.row.path[:-1], made.row.origin, made.row.path[-1]))
    planting.planted.findings.append(PlantedFinding("looped", "", planting.origin(batch), site))


def late(planting: Planting) -> None:
    """Plant a batch seven hours late, the last of its flow."""
    batch = planting.last_batch()
    site = planting.destination(batch)
    made = batch.delivered[site]
    made.change(recorded_ms=batch.packed.row.last_published_ms + LATE_MS)
    _last(planting, site, made)
    planting.found_all("late", batch, site)


def late_retried(planting: Planting) -> None:
    """Plant a dead letter that an operator sent again seven hours later."""
    batch, entry, site = planting.pick()
    whole = batch.delivered[site]
    again = cut(whole, entry, entry + 1)
    set_outcome(again, 0, Outcome.DELIVERED | REDELIVERED)
    again.change(event=Event.RETRIED, recorded_ms=batch.packed.row.last_published_ms + LATE_MS)
    set_outcome(whole, entry, Outcome.DEAD)
    planting.add(site, again, whole)
    _last(planting, site, again)
    planting.found("late", batch, entry, site)
    planting.planted.explained["redelivered"] += 1


def _last(planting: Planting, site: str, made: MadeRow) -> None:
    """Move a row to the end of the site's deliverer."""
    rows = planting.world.stage(site, Stage.DELIVERED)
    rows.remove(made)
    rows.append(made)


FAULTS: dict[str, Plant] = {
    # First, since some cannot be planted at a site with a second state folder.
    "lost-around-reslot": lost_around,
    "leaked-around-reslot": leaked_around,
    **DECEPTIONS,
    "late": late,
    "late-retried": late_retried,
    "lost": lost,
    "lost-batch": lost_batch,
    "lost-in-gap": lost_in_gap,
    "lost-as-duplicate": lost_as_duplicate,
    "leaked-within-batch": leaked_within_batch,
    "leaked-across-batches": leaked_across_batches,
    "leaked-across-origins": leaked_across_origins,
    "leaked-across-nodes": leaked_across_nodes,
    "loss-and-duplicate": loss_and_duplicate,
    "forged": forged,
    "back-at-origin": back_at_origin,
    "wrong-site": wrong_site,
    "altered": altered,
    "reordered": reordered,
    "reordered-batches": reordered_batches,
    "looped": looped,
    "repaired-wrongly": repaired_wrongly,
    "repaired-altered": repaired_altered,
    "repair-refused": repair_refused,
}
"""All kinds of faults; each is a finding."""
