"""Rows of Isthmus alone, by their names."""

from __future__ import annotations

from benchmarks.compare.studies import backlog, barrier, long_run, many_sites, multicast, window
from benchmarks.compare.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        backlog.STUDY,
        barrier.STUDY,
        many_sites.STUDY,
        multicast.STUDY,
        window.STUDY,
        long_run.STUDY,
    )
}
