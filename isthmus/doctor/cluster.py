"""Examination of a site's lists: does each address answer, and do all lead to one cluster?"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from federation.brokers.addresses import AddressBook, StreamAddress
from federation.brokers.one_cluster import (
    ONE_CLUSTER,
    WITHIN_S,
    NodeAnswer,
    node_answers,
    several_clusters,
)
from federation.counted import counted
from federation.names import Names
from isthmus.doctor.finding import Findings
from relay.log.rabbit.stream_connection import stream_cluster
from relay.log.site_log import SiteLogError


async def examine_cluster(book: AddressBook, site: str, found: Findings) -> None:
    """Find nothing at a site that has a single address of each kind. Raises AddressError,
    PasswordMissing.
    """
    amqp, stream = book.administrator(site), book.stream(site)
    management = book.monitoring(site)
    urls = () if management is None else management.urls
    if max(len(amqp.endpoints), len(stream.endpoints), len(urls)) < 2:
        return
    answers = await node_answers(amqp, management, Names(book.mesh.name).prefix)
    streams = await _stream_answers(stream)
    if wrong := several_clusters(answers):
        found.fault("cluster", wrong, ONE_CLUSTER)
    for answer in (*answers, *streams):
        if answer.why_not:
            found.warn(
                "cluster",
                f"{answer.address} does not answer: {answer.why_not}",
                "start that node, or take its address out; the site goes on over the others",
            )
    names = {answer.cluster for answer in answers}
    strangers = _strangers(streams, names)
    if strangers and not any(answer.why_not for answer in answers):
        found.warn(
            "cluster",
            f"{', '.join(strangers)} calls itself as no address of `broker` does",
            "see that `stream` names the nodes of `broker`, and no others",
        )
    if all(one.site != site or one.subject != "cluster" for one in found.all):
        count = counted(len(answers) + len(streams), "address", plural="addresses")
        found.ok("cluster", f"{count} lead to one cluster")


def _strangers(streams: Sequence[NodeAnswer], names: Collection[str]) -> list[str]:
    """Stream addresses whose node has another name for its cluster, which may be its own name, than
    every node of `broker`.
    """
    return [
        f"{one.address} ({one.cluster!r})"
        for one in streams
        if not one.why_not and one.cluster not in names
    ]


async def _stream_answers(address: StreamAddress) -> list[NodeAnswer]:
    alone = [
        replace(address, host=place.host, port=place.port, others=()) for place in address.endpoints
    ]
    return await asyncio.gather(*map(_stream_answer, alone))


async def _stream_answer(address: StreamAddress) -> NodeAnswer:
    try:
        return NodeAnswer(address.where, await stream_cluster(address, "isthmus doctor", WITHIN_S))
    except SiteLogError as error:
        return NodeAnswer(address.where, why_not=str(error))
