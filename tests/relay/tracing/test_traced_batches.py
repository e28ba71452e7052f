"""Spans of a batch: one trace whatever process makes them, with parents and links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.opened_batch import open_batch
from relay.tracing.message_context import MessageContext
from relay.tracing.traced_batches import MOST_REMEMBERED, BatchStage, StageSpan
from tests.log_batches import batch
from tests.relay.tracing.traced_messages import (
    PUBLISHED_MS,
    TRACE,
    Recorder,
    traced_batch,
    traceparent,
)

MS = 1_000_000
FIRST = MessageContext(int(TRACE, 16), 1, True)


def far_from(header: BatchHeader, data: bytes, *path: str) -> tuple[BatchHeader, bytes]:
    return replace(header, path=path), data


def logged(recorder: Recorder, header: BatchHeader, data: bytes) -> None:
    recorder.trace.logging(header, data)
    recorder.trace.logged(header)


def parent_of(span: StageSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def test_a_batch_on_its_way_over_three_sites_is_one_trace_though_each_is_another_process() -> None:
    recorder = Recorder()
    header, data = traced_batch(traceparent(1))
    logged(recorder, header, data)
    recorder.trace.sending(header, data, "lyon")
    recorder.trace.sent([header], "lyon")
    recorder.process()
    at_lyon = far_from(header, data, "paris", "lyon")
    logged(recorder, *at_lyon)
    recorder.process()
    recorder.trace.delivered(at_lyon[0], open_batch(data, header), 1_999_000, 1)
    recorder.process()
    logged(recorder, *far_from(header, data, "paris", "lyon", "oslo"))

    stages = [(span.stage, span.attributes["isthmus.site"]) for span in recorder.spans]
    assert stages == [
        (BatchStage.PACKED, "paris"),
        (BatchStage.POINTER, "paris"),
        (BatchStage.LOGGED, "paris"),
        (BatchStage.SENT, "paris"),
        (BatchStage.LOGGED, "lyon"),
        (BatchStage.DELIVERED, "lyon"),
        (BatchStage.LOGGED, "oslo"),
    ]
    packed, pointer, at_paris, sent, at_lyon_span, delivered, at_oslo = recorder.spans
    own = [span for span in recorder.spans if span is not pointer]
    assert {f"{span.trace_id:032x}" for span in own} == {
        recorder.trace.trace_id_of(str(header.name))
    }
    assert len({span.span_id for span in recorder.spans}) == len(recorder.spans)
    assert packed.parent is None
    assert parent_of(at_paris) == packed.span_id
    assert parent_of(sent) == parent_of(at_lyon_span) == at_paris.span_id
    assert parent_of(delivered) == parent_of(at_oslo) == at_lyon_span.span_id
    assert all(span.links == (FIRST,) for span in own)


def test_the_applications_own_trace_has_a_pointer_that_leads_to_the_batch() -> None:
    recorder = Recorder()
    logged(recorder, *traced_batch(traceparent(1), traceparent(2)))
    packed, *pointers, _ = recorder.spans
    assert [(span.trace_id, parent_of(span)) for span in pointers] == [
        (FIRST.trace_id, 1),
        (FIRST.trace_id, 2),
    ]
    assert all(span.links[0][:2] == (packed.trace_id, packed.span_id) for span in pointers)
    assert len({span.span_id for span in recorder.spans}) == 4


def test_a_span_lasts_as_long_as_its_stage() -> None:
    recorder = Recorder()
    header, data = traced_batch()
    recorder.trace.logging(header, data)
    recorder.now_ns += 5
    recorder.trace.logged(header)
    packed, span = recorder.spans
    assert (packed.begun_ns, packed.ended_ns) == (PUBLISHED_MS * MS, 2_000_000 * MS)
    assert (span.begun_ns, span.ended_ns) == (2_000_000 * MS, 2_000_000 * MS + 5)


def test_a_batch_that_is_sent_again_counts_since_the_first_time() -> None:
    recorder = Recorder()
    header, data = traced_batch()
    recorder.trace.sending(header, data, "lyon")
    begun_ns, recorder.now_ns = recorder.now_ns, recorder.now_ns + 7
    recorder.trace.sending(header, data, "lyon")
    recorder.trace.sent([header], "lyon")
    (span,) = recorder.spans
    assert (span.begun_ns, span.ended_ns - span.begun_ns) == (begun_ns, 7)


def test_each_neighbour_to_which_a_batch_goes_has_a_span() -> None:
    recorder = Recorder()
    header, data = traced_batch()
    for peer in ("lyon", "oslo"):
        recorder.trace.sending(header, data, peer)
    for peer in ("oslo", "lyon"):
        recorder.trace.sent([header], peer)
    assert [span.attributes["isthmus.peer"] for span in recorder.spans] == ["oslo", "lyon"]
    assert len({span.span_id for span in recorder.spans}) == 2


def test_two_sites_of_one_process_have_a_span_each() -> None:
    recorder = Recorder()
    header, data = traced_batch()
    sites = [replace(header, path=("paris", site)) for site in ("lyon", "oslo")]
    for one in sites:
        recorder.trace.logging(one, data)
        recorder.trace.sending(one, data, "rome")
        recorder.now_ns += 3
    for one in sites:
        recorder.trace.logged(one)
        recorder.trace.sent([one], "rome")
    told = [(span.stage, span.attributes["isthmus.site"]) for span in recorder.spans]
    assert sorted(told) == sorted(
        (stage, site) for stage in (BatchStage.LOGGED, BatchStage.SENT) for site in ("lyon", "oslo")
    )
    lasted = {
        span.attributes["isthmus.site"]: span.ended_ns - span.begun_ns for span in recorder.spans
    }
    assert lasted == {"lyon": 6, "oslo": 3}


def test_a_clock_behind_the_publishers_gives_a_span_without_length_and_none_that_ends_before() -> (
    None
):
    recorder = Recorder(now_ns=5)
    logged(recorder, *traced_batch())
    assert all(span.begun_ns == span.ended_ns == 5 for span in recorder.spans)


def test_the_attributes_say_where_and_what() -> None:
    recorder = Recorder()
    header, data = traced_batch(traceparent(1), traceparent(1), sequence=7)
    header = replace(header, path=("paris", "lyon"))
    logged(recorder, header, data)
    (span,) = recorder.spans
    assert span.exchange == "orders"
    assert span.attributes == {
        "messaging.batch.message_count": 2,
        "isthmus.mesh": "acme",
        "isthmus.site": "lyon",
        "isthmus.from": "paris",
        "isthmus.origin": "paris",
        "isthmus.lane": 0,
        "isthmus.batch": str(header.name),
        "isthmus.batch.number": 7,
        "isthmus.batch.bytes": header.byte_count,
        "isthmus.batch.kind": "messages",
    }


def test_a_batch_that_is_not_sampled_has_no_span_at_any_stage() -> None:
    recorder = Recorder(verdict=False)
    header, data = traced_batch(traceparent(1))
    logged(recorder, header, data)
    recorder.trace.sending(header, data, "lyon")
    recorder.trace.sent([header], "lyon")
    recorder.trace.delivered(header, open_batch(data, header), 1, 1)
    assert not recorder.spans
    assert recorder.asked == [FIRST]


def test_marks_and_canaries_are_not_even_asked_about() -> None:
    recorder = Recorder()
    for kind in (BatchKind.MARK, BatchKind.CANARY):
        logged(recorder, *batch(0, kind=kind))
    assert not recorder.spans
    assert not recorder.asked


def test_a_batch_that_cannot_be_opened_is_traced_without_links() -> None:
    recorder = Recorder()
    header, data = traced_batch(traceparent(1))
    logged(recorder, header, data[:-9] + bytes(9))
    assert recorder.asked == [None]
    assert [span.links for span in recorder.spans] == [(), ()]


def test_messages_of_a_repair_were_published_long_before_and_do_not_stretch_the_span() -> None:
    recorder = Recorder()
    header, data = traced_batch(traceparent(1))
    logged(recorder, replace(header, kind=BatchKind.REPAIR), data)
    packed = recorder.spans[0]
    assert packed.begun_ns == packed.ended_ns == recorder.now_ns


@pytest.mark.parametrize("stage", ["log", "link"])
def test_what_is_remembered_is_bounded_and_its_oldest_are_forgotten(stage: str) -> None:
    recorder = Recorder()
    header, data = traced_batch()
    headers = [
        replace(header, name=header.name._replace(sequence=n)) for n in range(MOST_REMEMBERED + 2)
    ]
    for one in headers:
        if stage == "log":
            recorder.trace.logging(one, data)
        else:
            recorder.trace.sending(one, data, "lyon")
    recorder.spans.clear()
    for one in headers:
        recorder.trace.logged(one)
    recorder.trace.sent(headers, "lyon")
    numbers = [span.attributes["isthmus.batch.number"] for span in recorder.spans]
    assert numbers == [*range(2, MOST_REMEMBERED + 2)]
