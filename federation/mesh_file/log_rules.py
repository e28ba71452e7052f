"""What the limits of sites' logs must satisfy, with the outage window that they are to hold. Pure.

How much a log needs follows from the rate at which it grows, which no file tells by itself. Where
`rate` says it, window and limit are compared here; otherwise that is for `isthmus plan`.
"""

from __future__ import annotations

from collections.abc import Iterator

from federation.brokers.provision import LOG_SEGMENT_BYTES
from federation.mesh import RETENTION_MARGIN_S, retention_s
from federation.mesh_file.document import MeshKeys
from federation.mesh_file.durations import show_duration
from federation.mesh_file.problems import Severity
from federation.mesh_file.site_keys import LogKeys
from federation.mesh_file.sizes import show_size
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location

MIN_LOG_BYTES = 4 * LOG_SEGMENT_BYTES
"""A broker frees whole segments only, and never the one that is being written."""
MAX_LOG_BYTES = 10**15


def log_of_site(mesh: LogKeys, site: LogKeys | None) -> LogKeys:
    """What holds at a site: the mesh's keys, less those that the site has itself."""
    if site is None:
        return mesh
    own = {name: value for name, value in site if value is not None}
    return mesh.model_copy(update=own)


def log_violations(keys: MeshKeys) -> Iterator[Violation]:
    """All that is wrong with the log's limits."""
    yield from _limit(("log",), keys.log, keys.log)
    yield from _window(keys, ("log",), keys.log, keys.log)
    for name, site in keys.sites.items():
        if site.log is not None:
            at, whole = ("sites", name, "log"), log_of_site(keys.log, site.log)
            yield from _limit(at, site.log, whole)
            yield from _window(keys, at, site.log, whole)


def _limit(at: Location, said: LogKeys, whole: LogKeys) -> Iterator[Violation]:
    if said.max_bytes is not None and said.max_bytes < MIN_LOG_BYTES:
        yield Violation(
            (*at, "max_bytes"),
            f"a log of {show_size(said.max_bytes)} is not possible: it goes by segments of 64MiB",
            "write 256MiB or more",
        )
    if said.max_bytes is not None and said.max_bytes > MAX_LOG_BYTES:
        yield Violation(
            (*at, "max_bytes"),
            f"a log of {show_size(said.max_bytes)} is not possible: no disk has that",
            "write what this site's disk can spare, or leave it out",
        )
    if whole.max_bytes is None:
        for key in ("on_full", "rate"):
            if getattr(said, key) is not None:
                yield Violation(
                    (*at, key),
                    f"`{key}` says nothing without `max_bytes`: the log takes what it needs",
                    "add max_bytes: 20GB, or take it out",
                    True,
                    severity=Severity.WARNING,
                    depends_on=("max_bytes",),
                )


def _window(keys: MeshKeys, at: Location, said: LogKeys, whole: LogKeys) -> Iterator[Violation]:
    if whole.max_bytes is None or whole.rate is None or whole.max_bytes < MIN_LOG_BYTES:
        return
    need = whole.rate * retention_s(keys.outage_window)
    if need <= whole.max_bytes:
        return
    if at == ("log",) and "outage_window" in keys.model_fields_set:
        at = ("outage_window",)
    else:
        at = (*at, "rate" if said.max_bytes is None else "max_bytes")
    held = whole.max_bytes / max(whole.rate, 1)
    longest = int(max(min(held / 1.1, held - RETENTION_MARGIN_S), 0))
    longest -= longest % (3600 if longest >= 3600 else 60)
    mend = "write max_bytes: " + show_size(-(-need // 10**9) * 10**9)
    if longest:
        mend += f", or an outage window of at most {show_duration(longest)}"
    yield Violation(
        at,
        f"an outage window of {show_duration(keys.outage_window)} and its margin, at "
        f"{show_size(whole.rate)}/s, take {show_size(need)} of log, more than the "
        f"{show_size(whole.max_bytes)} of `max_bytes`",
        mend,
        depends_on=("log",),
    )
