"""Barrier's memory of other slots, from the memories of the present ones.

A generation of the new memory has what was in the same generation, the young or the old one, of any
former slot. Ages differ: the new young generation has the least of them, so that nothing is
forgotten before its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dedup.generations import GENERATIONS, GenerationAge
from dedup.identity import IDENTITY_BYTES, scope_prefix
from dedup.store import Changes, Store
from relay.reslot.slot_change import SlotChange
from relay.state.node_state import STATE

_AT_ONCE = 4096
"""Number of keys in a write."""

Progress = Callable[[int], None]
"""Callback with the number of keys carried over so far."""


def exchanges_by_prefix(exchanges: Iterable[str], origins: Sequence[str]) -> dict[bytes, str]:
    """Return the exchange of each scope that a barrier's key may begin with. `origins` are cluster
    IDs.
    """
    return {
        scope_prefix(exchange, origin): exchange
        for exchange in exchanges
        for origin in (None, *origins)
    }


def carry_memory(
    former: Sequence[Store],
    new: Sequence[Store],
    change: SlotChange,
    exchanges: Mapping[bytes, str],
    progress: Progress,
) -> None:
    """Write the memories of all new slots. `exchanges` are by scope prefix; what is of none of them
    goes to all slots.
    """
    ages = [GenerationAge.of(store, STATE) for store in former]
    carried = 0
    for number, store in enumerate(former):
        young = ages[number].young_table
        for table in GENERATIONS:
            writing = [_Writing(into, GENERATIONS[table != young]) for into in new]
            for key, value in store.scan(table):
                for heir in change.heirs(number, exchanges.get(key[:-IDENTITY_BYTES])):
                    writing[heir].put(key, value)
                carried += 1
                if carried % _AT_ONCE == 0:
                    progress(carried)
            for one in writing:
                one.flush()
    age = GenerationAge.youngest(ages)
    for store in new:
        changes = Changes()
        age.put(changes, STATE)
        store.write(changes)
    progress(carried)


class _Writing:
    """Keys on their way into a table."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table
        self._changes = Changes()
        self._count = 0

    def put(self, key: bytes, value: bytes) -> None:
        self._changes.put(self._table, key, value)
        self._count += 1
        if self._count >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        self._store.write(self._changes)
        self._changes, self._count = Changes(), 0
