"""What becomes of a message that egress hands out."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.identity import content_hash, text_identity
from federation.mesh import IdentityKind, IdentityRule
from relay.batches.batch import Entry
from relay.bulk_amqp import field_table
from relay.bulk_amqp.content_header import (
    APP_ID,
    CLUSTER_ID,
    MESSAGE_ID,
    NONE_PRESENT,
    TYPE,
    USER_ID,
    header,
    headers,
    rewrite,
    text,
    without_headers,
)
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.properties import DeliveryStamp
from relay.packing.intake import Cleaned, Intake, headers_and_user, message_id_of
from tests.message_properties import NAMES, NUMBERS, properties

NOW = 1_700_000_000_000


def intake(rule: IdentityRule | None = None) -> Intake:
    return Intake("orders", rule or IdentityRule(), ("relay",), random.Random(1).randbytes)


def string_header(name: bytes, value: bytes) -> bytes:
    return field_table.entry(name, field_table.long_string(value))


DEATH = field_table.entry(b"x-death", b"A\x00\x00\x00\x01V")
DEATH_AGAIN = field_table.entry(b"x-death", b"A\x00\x00\x00\x02VV")
DELIVERY_COUNT = field_table.entry(b"x-delivery-count", field_table.long_integer(0))
COUNTS = DELIVERY_COUNT + field_table.entry(b"x-acquired-count", field_table.long_integer(1))
"""Headers that RabbitMQ 4.3 adds to messages that it hands out again."""


def cleaned(raw: bytes) -> bytes:
    made = intake().clean(raw)
    assert made is not None
    return made.properties


class TestCleaning:
    def test_a_plain_message_is_logged_byte_for_byte(self) -> None:
        raw = properties(content_type=b"text/plain", delivery_mode=2, message_id=b"m", app_id=b"a")
        assert cleaned(raw) is raw

    def test_no_properties_stay_no_properties(self) -> None:
        assert cleaned(NONE_PRESENT) == NONE_PRESENT

    @pytest.mark.parametrize("counts", [DELIVERY_COUNT, COUNTS], ids=["3.10", "4.3"])
    @pytest.mark.parametrize("beside", [{}, {"content_type": b"t", "content_encoding": b"e"}])
    def test_the_queue_s_own_counts_go(self, beside: dict[str, bytes], counts: bytes) -> None:
        with_counts = properties(headers=counts, message_id=b"m", **beside)
        assert cleaned(with_counts) == properties(message_id=b"m", **beside)

    @pytest.mark.parametrize("counts", [DELIVERY_COUNT, COUNTS], ids=["3.10", "4.3"])
    def test_the_counts_go_from_among_a_publisher_s_headers(self, counts: bytes) -> None:
        own = string_header(b"a", b"1") + field_table.entry(b"n", b"F\0\0\0\x04\x01xt\x01")
        assert cleaned(properties(headers=own + counts)) == properties(headers=own)

    def test_a_forged_header_is_stripped(self) -> None:
        own = string_header(b"a", b"1")
        forged = string_header(b"x-mesh-path", b"tokyo,sydney") + string_header(b"x-mesh-", b"")
        assert cleaned(properties(headers=forged + own)) == properties(headers=own)

    def test_user_and_cluster_move_to_headers(self) -> None:
        made = cleaned(properties(user_id=b"alice", cluster_id=b"c", app_id=b"a", type=b"t"))
        assert text(made, USER_ID) is None
        assert text(made, CLUSTER_ID) is None
        assert header(made, b"x-mesh-user-id") == field_table.long_string(b"alice")
        assert header(made, b"x-mesh-cluster-id") == field_table.long_string(b"c")
        assert text(made, APP_ID) == b"a"
        assert text(made, TYPE) == b"t"

    def test_a_forged_user_header_does_not_stand_beside_the_true_one(self) -> None:
        forged = string_header(b"x-mesh-user-id", b"mallory")
        made = cleaned(properties(headers=forged, user_id=b"alice"))
        assert headers(made) == string_header(b"x-mesh-user-id", b"alice")

    def test_an_expiration_stays_and_is_told(self) -> None:
        raw = properties(expiration=b"1500")
        assert intake().clean(raw) == Cleaned(raw, 1500)

    def test_what_cannot_be_read_is_logged_as_it_came_and_counted(self) -> None:
        made = intake()
        for raw in (b"\x20\x10\x00\x00\x00\xff\x05x-mesh-", b"\xa0\x00", b"\x00\x10\x40"):
            assert made.clean(raw) == Cleaned(raw, None)
        assert made.malformed == 3


class TestOwnComingRound:
    def delivered(self, exchange: str = "orders", user: str = "relay", extra: bytes = b"") -> bytes:
        raw = properties(message_id=b"m", headers=string_header(b"a", b"1") + extra)
        return DeliveryStamp(exchange, ("tokyo", "paris"), user).apply(raw, flagged=False)

    def test_what_our_deliverer_published_is_dropped(self) -> None:
        assert intake().clean(self.delivered()) is None

    def test_also_what_it_published_as_another_user_by_an_earlier_mesh_file(self) -> None:
        users = ("isthmus.acme.relay.paris", "relay")
        now = Intake("orders", IdentityRule(), users, random.Random(1).randbytes)
        assert now.clean(self.delivered()) is None
        assert now.clean(self.delivered(user="mallory")) is not None

    def test_also_with_what_a_queue_adds(self) -> None:
        assert intake().clean(rewrite(self.delivered(), {}, DELIVERY_COUNT)) is None

    def test_another_user_s_forgery_is_a_message(self) -> None:
        made = intake().clean(self.delivered(user="mallory"))
        assert made is not None
        assert header(made.properties, b"x-mesh-exchange") is None
        assert header(made.properties, b"a") is not None

    def test_a_delivery_through_a_binding_from_another_mesh_exchange_is_a_message(self) -> None:
        assert intake().clean(self.delivered("prices")) is not None

    def test_a_dead_lettered_one_is_a_message(self) -> None:
        assert intake().clean(rewrite(self.delivered(), {}, DEATH)) is not None

    def test_a_delivery_that_died_before_its_publication_is_ours_coming_round(self) -> None:
        delivered = self.delivered(extra=DEATH)
        assert intake().clean(rewrite(delivered, {}, DELIVERY_COUNT)) is None

    def test_a_delivery_that_dies_again_afterwards_is_a_message(self) -> None:
        delivered = self.delivered(extra=DEATH)
        again = rewrite(without_headers(delivered, names=(b"x-death",)), {}, DEATH_AGAIN)
        made = intake().clean(again)
        assert made is not None
        assert header(made.properties, b"x-mesh-deaths") is None
        assert header(made.properties, b"x-death") == b"A\x00\x00\x00\x02VV"

    def test_in_split_mode_nothing_comes_round_and_whoever_passes_for_the_relay_is_a_publisher(
        self,
    ) -> None:
        split = Intake("orders", IdentityRule(), ("relay",), random.randbytes, comes_round=False)
        made = split.clean(self.delivered())
        assert made is not None
        assert header(made.properties, b"x-mesh-exchange") is None
        assert header(made.properties, b"x-mesh-user-id") == field_table.long_string(b"relay")

    def test_our_mark_inside_a_nested_table_is_not_ours(self) -> None:
        inner = string_header(b"x-mesh-exchange", b"orders")
        nested = field_table.entry(b"n", b"F" + len(inner).to_bytes(4, "big") + inner)
        raw = properties(headers=nested, user_id=b"relay")
        assert intake().clean(raw) is not None

    def test_the_answer_for_a_header_table_does_not_stand_for_another(self) -> None:
        made = intake()
        assert made.clean(self.delivered()) is None
        assert made.clean(self.delivered("prices")) is not None
        assert made.clean(rewrite(self.delivered(), {}, DEATH)) is not None
        assert made.clean(self.delivered(user="mallory")) is not None
        assert made.clean(self.delivered()) is None

    def test_answers_for_many_header_tables_take_no_memory_for_ever(self) -> None:
        made = intake()
        for n in range(2000):
            assert made.clean(self.delivered(extra=string_header(b"n", b"%d" % n))) is None


def entry_of(made: Intake, raw: bytes, body: bytes = b"body") -> tuple[Entry, bool]:
    cleaned = made.clean(raw)
    assert cleaned is not None
    return made.entry(b"key", cleaned, body, NOW)


class TestIdentity:
    def test_a_uuid_is_the_identity(self) -> None:
        one = uuid.uuid4()
        entry, own = entry_of(intake(), properties(message_id=str(one).encode()))
        assert (entry.identity, own) == (one.bytes, True)

    def test_the_urn_of_a_uuid_is_the_same_identity(self) -> None:
        one = uuid.uuid4()
        raw = properties(message_id=one.urn.encode())
        entry, own = entry_of(intake(), raw)
        assert (entry.identity, own) == (one.bytes, True)
        assert entry.properties == raw
        assert intake().names_itself(raw)

    def test_others_get_one_each_with_the_time_in_front(self) -> None:
        made = intake()
        entries = [entry_of(made, properties(message_id=b"17")) for _ in range(600)]
        assert len({entry.identity for entry, _ in entries}) == 600
        assert not any(own for _, own in entries)
        made_id = uuid.UUID(bytes=entries[0][0].identity)
        assert made_id.version == 7
        assert made_id.int >> 80 == NOW

    def test_by_message_id_any_string_is_one(self) -> None:
        made = intake(IdentityRule(IdentityKind.MESSAGE_ID))
        for one in (b"17", uuid.uuid4().urn.encode()):
            assert entry_of(made, properties(message_id=one))[0].identity == text_identity(one)
        assert not entry_of(made, properties(app_id=b"17"))[1]

    def test_by_header_it_is_that_header_s_text(self) -> None:
        made = intake(IdentityRule(IdentityKind.HEADER, "order"))
        raw = properties(headers=string_header(b"order", b"17"))
        assert entry_of(made, raw)[0].identity == text_identity(b"17")
        number = properties(headers=field_table.entry(b"order", field_table.long_integer(17)))
        assert entry_of(made, number)[1]
        assert not entry_of(made, properties(headers=string_header(b"other", b"17")))[1]

    def test_by_content_the_timestamp_does_not_matter(self) -> None:
        made = intake(IdentityRule(IdentityKind.CONTENT))
        one, _ = entry_of(made, properties(content_type=b"t", timestamp=1))
        two, own = entry_of(made, properties(content_type=b"t", timestamp=2))
        assert own
        assert one.identity == two.identity == content_hash(b"key", b"body", b"t", None)

    def test_by_nothing_a_uuid_is_none(self) -> None:
        made = intake(IdentityRule(IdentityKind.NONE))
        assert not entry_of(made, properties(message_id=str(uuid.uuid4()).encode()))[1]


class TestDeadline:
    def test_an_expiration_is_counted_from_when_the_message_was_taken(self) -> None:
        assert entry_of(intake(), properties(expiration=b"1500"))[0].deadline_ms == NOW + 1500

    def test_an_expiration_of_nothing_is_a_deadline_too(self) -> None:
        assert entry_of(intake(), properties(expiration=b"0"))[0].deadline_ms == NOW

    def test_without_expiration_there_is_no_deadline(self) -> None:
        assert entry_of(intake(), properties())[0].deadline_ms == 0


MOST = {"delivery_mode": 255, "priority": 255, "timestamp": 2**63}
ANY_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={name: st.binary(max_size=40) for name in NAMES if name not in NUMBERS}
    | {name: st.integers(0, MOST[name]) for name in NUMBERS},
)


@given(ANY_PROPERTIES)
def test_the_walk_by_hand_finds_the_message_id_that_the_walk_by_table_finds(
    values: dict[str, bytes | int],
) -> None:
    raw = properties(**values, headers=string_header(b"a", b"1") if len(values) % 2 else b"")
    assert message_id_of(raw) == text(raw, MESSAGE_ID) == values.get("message_id")


@given(ANY_PROPERTIES, st.integers(0, 400))
def test_the_walk_by_hand_finds_the_user_as_the_walk_by_table_or_raises(
    values: dict[str, bytes | int], kept: int
) -> None:
    raw = properties(**values, headers=string_header(b"a", b"1") if len(values) % 2 else b"")
    user = values.get("user_id", b"")
    assert headers_and_user(raw) == (headers(raw) or b"", user)
    try:
        assert headers_and_user(raw[:kept])[1] in (user, b"")
    except MalformedProperties:
        assert kept < len(raw)
