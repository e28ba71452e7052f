"""What the barrier makes of repaired messages, over every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup.barrier import Barrier, Judgement, Verdict
from dedup.generations import GENERATIONS
from dedup.keys import place_prefix, places_of
from dedup.memory_store import MemoryStore
from dedup.rocksdb_store import RocksdbStore
from dedup.store import Changes, Store

TABLES = ("meta", *GENERATIONS)
WINDOW_MS = 36_000_000
NEW, CONFLICT, DUPLICATE = Verdict.NEW, Verdict.CONFLICT, Verdict.DUPLICATE
REPLAY, TWIN, CLAIMED = Verdict.REPLAY, Verdict.TWIN, Verdict.CLAIMED


def key(identity: str) -> bytes:
    return b"scope..." + identity.encode().ljust(16)


class Site:
    """A barrier over a store, and short ways to use it. A message is "identity=content"."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.barrier = Barrier(store, WINDOW_MS, meta_table="meta")

    def columns(self, messages: tuple[str, ...], batch: str) -> tuple[list[bytes], ...]:
        parts = [(*message.split("="), "same")[:2] for message in messages]
        return (
            [key(identity) for identity, _ in parts],
            [text.encode().ljust(16) for _, text in parts],
            places_of(place_prefix(batch.encode()), 0, len(parts)),
        )

    def judge(self, *messages: str, batch: str = "batch") -> Judgement:
        return self.barrier.judge(batch, *self.columns(messages, batch))

    def repair(self, *messages: str, batch: str, unproven: bool = True) -> Judgement:
        """`unproven`: the ledger has no delivery of any."""
        columns = self.columns(messages, batch)
        asked = self.barrier.remembered(*columns[:2]).values()
        return self.barrier.judge_repair(batch, *columns, asked if unproven else ())

    def commit(self, judgement: Judgement) -> list[Verdict]:
        changes = Changes()
        self.barrier.commit(judgement, changes)
        self.store.write(changes)
        assert not self.barrier.claims
        return judgement.verdicts


@pytest.fixture(params=["memory", "rocksdb"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    store: Store
    if request.param == "memory":
        store = MemoryStore(TABLES)
    else:
        store = RocksdbStore(tmp_path / "s", TABLES, point_tables=frozenset(GENERATIONS))
    yield Site(store)
    store.close()


def test_what_was_never_seen_is_delivered_and_stops_later_copies(site: Site) -> None:
    assert site.commit(site.repair("a", "b", batch="repair")) == [NEW, NEW]
    assert site.commit(site.judge("a", "c")) == [DUPLICATE, NEW]


def test_a_second_repair_is_suppressed(site: Site) -> None:
    site.commit(site.repair("a", batch="first"))
    assert site.commit(site.repair("a", batch="second")) == [DUPLICATE]
    assert site.commit(site.repair("a", batch="first")) == [REPLAY]


def test_what_is_remembered_without_a_delivery_is_delivered_once(site: Site) -> None:
    site.commit(site.judge("a"))
    assert site.commit(site.repair("a", batch="first")) == [NEW]
    assert site.commit(site.repair("a", batch="second")) == [DUPLICATE]
    assert site.commit(site.repair("a", batch="first")) == [REPLAY]
    assert site.commit(site.judge("a", batch="late copy")) == [DUPLICATE]


def test_what_the_ledger_has_a_delivery_of_is_suppressed(site: Site) -> None:
    site.commit(site.judge("a"))
    assert site.commit(site.repair("a", "b", batch="first", unproven=False)) == [DUPLICATE, NEW]


def test_only_what_is_remembered_and_not_repaired_yet_is_asked_about(site: Site) -> None:
    site.commit(site.judge("a", "b"))
    site.commit(site.repair("b", batch="first"))
    columns = site.columns(("a", "b", "c", "a=other"), "second")
    assert site.barrier.remembered(*columns[:2]) == {0: key("a")}


def test_another_content_is_a_conflict_and_repaired_once(site: Site) -> None:
    site.commit(site.judge("a"))
    assert site.commit(site.repair("a=other", batch="first", unproven=False)) == [CONFLICT]
    assert site.commit(site.repair("a=other", batch="second")) == [DUPLICATE]
    assert site.commit(site.judge("a=other", batch="late copy")) == [DUPLICATE]


def test_a_conflict_that_is_remembered_without_a_delivery_is_delivered_once(site: Site) -> None:
    site.commit(site.judge("a"))
    site.commit(site.judge("a=other", batch="conflict"))
    assert site.commit(site.repair("a=other", batch="first")) == [NEW]
    assert site.commit(site.repair("a=other", batch="second")) == [DUPLICATE]
    assert site.commit(site.repair("a", batch="third")) == [NEW]


def test_two_repairs_of_one_message_wait_for_each_other(site: Site) -> None:
    site.commit(site.judge("seen"))
    for message in ("seen", "unseen"):
        first = site.repair(message, batch=f"{message} first")
        second = site.repair(message, batch=f"{message} second")
        assert (first.verdicts, second.verdicts) == ([NEW], [CLAIMED])
        told: list[str] = []
        site.barrier.when_released(second, lambda told=told: told.append("released"))
        assert site.commit(first) == [NEW]
        assert told == ["released"]
        assert site.commit(site.repair(message, batch=f"{message} second")) == [DUPLICATE]


def test_a_repair_waits_for_the_copy_that_another_flow_has_in_hand(site: Site) -> None:
    ordinary = site.judge("a")
    assert site.repair("a", batch="repair").verdicts == [CLAIMED]
    site.commit(ordinary)
    assert site.commit(site.repair("a", batch="repair", unproven=False)) == [DUPLICATE]


def test_an_ordinary_copy_waits_for_the_repair_that_is_under_way(site: Site) -> None:
    repair = site.repair("a", batch="repair")
    assert site.judge("a").verdicts == [CLAIMED]
    site.commit(repair)
    assert site.commit(site.judge("a")) == [DUPLICATE]


def test_a_repair_that_was_not_delivered_may_come_again(site: Site) -> None:
    site.commit(site.judge("seen"))
    judgement = site.repair("seen", "unseen", batch="first")
    assert judgement.verdicts == [NEW, NEW]
    site.barrier.release(judgement)
    assert not site.barrier.claims
    assert site.commit(site.repair("seen", "unseen", batch="second")) == [NEW, NEW]


def test_the_same_message_twice_in_one_repair_is_one(site: Site) -> None:
    site.commit(site.judge("seen"))
    judgement = site.repair("seen", "unseen", "seen", "unseen", batch="first")
    assert judgement.verdicts == [NEW, NEW, TWIN, TWIN]
    assert judgement.twins == {2: 0, 3: 1}
    site.commit(judgement)
