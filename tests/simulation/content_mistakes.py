"""Mistakes with large messages that a site keeps in its content store, found in worlds of these."""

from __future__ import annotations

from tests.simulation.mistake import Mistake

OF_CONTENT = "--nodes 2 --big 3 --messages 25 --seconds 20 --every 0.7"

CONTENT_MISTAKES = (
    Mistake(
        "content whose store is away counts as stored",
        "relay/content/contents.py",
        """\
        await self._asked("writing", write, on_away)
""",
        """\
        try:
            await write()
        except ContentAway as error:
            log.warning("not stored: %s", error)
""",
        f"{OF_CONTENT} --faults journal",
        2,
        "I10 at",
    ),
    Mistake(
        "small batches overtake those whose content is being stored",
        "relay/content/content_log.py",
        """\
            self._waiting or (rule and any(content_of(r, rule.above) for r in records))
""",
        """\
            rule and any(content_of(r, rule.above) for r in records)
""",
        f"{OF_CONTENT} --faults journal",
        1,
        "I5 at",
    ),
    Mistake(
        "flow goes on past a content that is gone",
        "relay/delivery/flow_delivery.py",
        """\
                is_lost = builder.lacks(job.batch)
""",
        """\
                is_lost = builder.lacks(job.batch)
                if is_lost:
                    continue
""",
        f"{OF_CONTENT} --faults content,full,kill",
        4,
        "after 900 s",
    ),
    Mistake(
        "link goes on past a content that is gone",
        "relay/links/sender/outgoing.py",
        """\
                session.stands, session.lost = data.reason, LoggedBatch(place, header, data)
                break
""",
        """\
                moved = window.skip(place) or moved
                continue
""",
        f"{OF_CONTENT} --faults content,stop,cut",
        1,
        "I8: the link",
    ),
    Mistake(
        "link stops at a gap with batches on their way",
        "relay/links/sender/machine.py",
        """\
        return self._session.lost if self._session is not None and self.rests else None
""",
        """\
        return self._session.lost if self._session is not None else None
""",
        f"{OF_CONTENT} --faults content,stop,cut",
        10,
        "I8: the link",
    ),
    Mistake(
        "reference goes out while its content is being stored",
        "relay/delivery/referred.py",
        """\
    content_id = await contents.put(body, rule.retention_s, on_away)
""",
        """\
    import asyncio

    from relay.content.reference import id_of

    content_id = id_of(body)
    asyncio.ensure_future(contents.put(body, rule.retention_s, on_away))
""",
        f"{OF_CONTENT} --faults journal",
        1,
        "I11 at",
    ),
    Mistake(
        "reference has the digest of the first piece",
        "relay/delivery/referred.py",
        """\
            entry(CONTENT_SHA256_HEADER, long_string(sha256(body).hexdigest().encode())),
""",
        """\
            entry(
                CONTENT_SHA256_HEADER,
                long_string(sha256(body[: 768 * 1024]).hexdigest().encode()),
            ),
""",
        f"{OF_CONTENT} --faults journal",
        1,
        "I11 at",
    ),
    Mistake(
        "content of a reference is stored without its last chunk",
        "relay/content/contents.py",
        """\
        chunks = range(-(-size // CHUNK_BYTES))
        if all""",
        """\
        chunks = range(max(1, size // CHUNK_BYTES))
        if all""",
        f"{OF_CONTENT} --faults journal",
        1,
        "I11 at",
    ),
)
