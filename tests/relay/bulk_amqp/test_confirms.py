from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.bulk_amqp.confirms import ConfirmLedger, Publication, PublishOutcome
from relay.bulk_amqp.errors import UnexpectedFrame
from relay.bulk_amqp.frame_writer import Message

SINGLE, MULTIPLE = 0, 1
ACK, NACK = True, False


def ledger_with(*counts: int) -> tuple[ConfirmLedger, list[Publication]]:
    ledger = ConfirmLedger()
    return ledger, [ledger.published(count, 100 * count, 0.0) for count in counts]


def test_one_cumulative_ack_ends_all_publications_up_to_it() -> None:
    ledger, (first, second, third) = ledger_with(3, 2, 4)
    assert ledger.answered(ACK, [(5, MULTIPLE)]) == [first, second]
    assert first.outcome == PublishOutcome(1, 3)
    assert first.outcome.all_routed
    assert third.outcome is None
    assert ledger.unconfirmed_messages == 4


def test_tag_zero_speaks_for_all_that_were_sent() -> None:
    ledger, publications = ledger_with(3, 2)
    assert ledger.answered(ACK, [(0, MULTIPLE)]) == publications


def test_a_later_publication_is_done_while_an_earlier_one_waits() -> None:
    ledger, (first, second) = ledger_with(2, 2)
    assert ledger.answered(ACK, [(4, SINGLE), (1, SINGLE), (3, SINGLE)]) == [second]
    assert first.outcome is None
    assert ledger.answered(ACK, [(2, SINGLE)]) == [first]


def test_a_cumulative_ack_does_not_speak_for_what_was_nacked_before() -> None:
    ledger, (only,) = ledger_with(4)
    ledger.answered(NACK, [(2, SINGLE)])
    ledger.answered(ACK, [(4, MULTIPLE)])
    assert only.outcome == PublishOutcome(1, 4, nacked=(2,))
    assert not only.outcome.all_routed


def test_a_cumulative_nack_names_only_what_had_no_answer() -> None:
    ledger, (first, second) = ledger_with(3, 3)
    ledger.answered(ACK, [(2, SINGLE), (5, SINGLE)])
    assert ledger.answered(NACK, [(6, MULTIPLE)]) == [first, second]
    assert first.outcome == PublishOutcome(1, 3, nacked=(1, 3))
    assert second.outcome == PublishOutcome(4, 6, nacked=(4, 6))


def test_the_same_answer_twice_counts_once() -> None:
    ledger, (only,) = ledger_with(3)
    ledger.answered(ACK, [(2, SINGLE), (2, SINGLE), (1, SINGLE), (1, SINGLE)])
    assert ledger.unconfirmed_messages == 1
    assert ledger.answered(ACK, [(3, SINGLE), (3, SINGLE)]) == [only]
    assert ledger.answered(ACK, [(3, SINGLE)]) == []


@pytest.mark.parametrize("bits", [SINGLE, MULTIPLE])
def test_an_answer_for_what_was_never_sent_is_refused(bits: int) -> None:
    ledger, _ = ledger_with(3)
    with pytest.raises(UnexpectedFrame, match="publish 4, never sent"):
        ledger.answered(ACK, [(4, bits)])


def test_when_the_channel_closes_the_rest_is_unknown() -> None:
    ledger, (first, second) = ledger_with(3, 2)
    ledger.answered(ACK, [(1, SINGLE)])
    ledger.answered(NACK, [(3, SINGLE)])
    assert ledger.close() == [first, second]
    assert first.outcome == PublishOutcome(1, 3, nacked=(3,), unknown=(2,))
    assert second.outcome == PublishOutcome(4, 5, unknown=(4, 5))
    assert (ledger.unconfirmed_messages, ledger.unconfirmed_bytes) == (0, 0)


def test_bytes_and_age_are_those_of_what_has_no_answer() -> None:
    ledger = ConfirmLedger()
    assert ledger.oldest_unconfirmed_age(5.0) == 0.0
    ledger.published(4, 4000, now=1.0)
    ledger.published(1, 500, now=3.0)
    assert ledger.oldest_unconfirmed_age(5.0) == 4.0
    ledger.answered(ACK, [(2, SINGLE)])
    assert ledger.unconfirmed_bytes == 3500
    ledger.answered(ACK, [(4, MULTIPLE)])
    assert ledger.unconfirmed_bytes == 500
    assert ledger.oldest_unconfirmed_age(5.0) == 2.0


Answer = tuple[bool, list[tuple[int, int]]]


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[int], list[Answer]]:
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    total = sum(counts)
    tag = st.tuples(st.integers(1, total), st.sampled_from([SINGLE, SINGLE, MULTIPLE]))
    some = st.tuples(st.booleans(), st.lists(tag, min_size=1, max_size=4))
    return counts, draw(st.lists(some, max_size=12))


@given(answers())
@settings(max_examples=300)
def test_any_order_of_answers_gives_what_a_naive_book_gives(
    case: tuple[list[int], list[Answer]],
) -> None:
    counts, told = case
    ledger, publications = ledger_with(*counts)
    book: dict[int, bool | None] = dict.fromkeys(range(1, sum(counts) + 1))
    done: list[Publication] = []
    for positive, tags in told:
        done += ledger.answered(positive, tags)
        for tag, bits in tags:
            for sequence in range(1 if bits else tag, tag + 1):
                if book[sequence] is None:
                    book[sequence] = positive
        assert ledger.unconfirmed_messages == sum(
            1
            for p in publications
            if p not in done
            for n in range(p.first, p.last + 1)
            if book[n] is None
        )
    for publication in publications:
        mine = {n: book[n] for n in range(publication.first, publication.last + 1)}
        assert (publication in done) == (None not in mine.values())
    assert len(done) == len(set(done))
    ledger.close()
    for publication in publications:
        mine = {n: book[n] for n in range(publication.first, publication.last + 1)}
        assert publication.outcome == PublishOutcome(
            publication.first,
            publication.last,
            nacked=tuple(n for n, answer in mine.items() if answer is False),
            unknown=tuple(n for n, answer in mine.items() if answer is None),
        )


def mandatory(*messages: Message) -> tuple[ConfirmLedger, Publication]:
    ledger = ConfirmLedger()
    return ledger, ledger.published(len(messages), 1, 0.0, list(messages))


A: Message = ("e", b"a", b"\x00\x00", b"body")
B: Message = ("e", b"b", b"\x00\x00", b"body")
A_WITH_ID: Message = ("e", b"a", b"\x00\x80\x01i", b"body")


def test_a_return_is_found_by_what_it_carries() -> None:
    ledger, publication = mandatory(A, B, A_WITH_ID)
    assert ledger.returned(*B) == (publication, 2)
    assert ledger.returned(*A_WITH_ID) == (publication, 3)
    ledger.answered(ACK, [(3, MULTIPLE)])
    assert publication.outcome == PublishOutcome(1, 3, returned=(2, 3))
    assert not publication.outcome.all_routed


def test_of_identical_neighbours_each_return_takes_another() -> None:
    ledger, publication = mandatory(A, A, A)
    assert [ledger.returned(*A)[1] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(UnexpectedFrame, match="not in flight"):
        ledger.returned(*A)
    assert publication.outcome is None


def test_a_return_never_names_what_has_its_answer() -> None:
    ledger, _ = mandatory(A, A, A, A)
    ledger.answered(ACK, [(1, MULTIPLE), (3, SINGLE)])
    assert [ledger.returned(*A)[1] for _ in range(2)] == [2, 4]


def test_returns_come_in_order_so_an_older_twin_was_routed() -> None:
    ledger, _ = mandatory(A, B, A)
    assert ledger.returned(*B)[1] == 2
    assert ledger.returned(*A)[1] == 3


def test_a_broker_that_rewrites_properties_is_still_understood() -> None:
    ledger, _ = mandatory(A_WITH_ID, B)
    assert ledger.returned("e", b"a", b"\x00\x00", b"body")[1] == 1


def test_equal_properties_are_better_than_an_older_likeness() -> None:
    ledger, _ = mandatory(A_WITH_ID, A)
    assert ledger.returned(*A)[1] == 2


def test_a_return_of_what_was_not_mandatory_is_refused() -> None:
    ledger = ConfirmLedger()
    ledger.published(1, 1, 0.0)
    with pytest.raises(UnexpectedFrame):
        ledger.returned(*A)


def test_a_message_that_came_back_but_has_no_confirm_is_both_returned_and_unknown() -> None:
    ledger, publication = mandatory(A, B)
    ledger.returned(*A)
    ledger.close()
    assert publication.outcome == PublishOutcome(1, 2, returned=(1,), unknown=(1, 2))


@given(st.lists(st.tuples(st.sampled_from([A, B, A_WITH_ID]), st.booleans()), min_size=1))
def test_every_return_finds_its_equal_and_no_two_the_same(
    sent: list[tuple[Message, bool]],
) -> None:
    ledger, _ = mandatory(*(message for message, _ in sent))
    named = [ledger.returned(*message)[1] for message, unroutable in sent if unroutable]
    assert len(named) == len(set(named))
    assert [sent[n - 1][0] for n in named] == [message for message, back in sent if back]
