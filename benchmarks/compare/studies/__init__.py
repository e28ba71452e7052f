"""Rows of Isthmus alone, by their names."""

from __future__ import annotations

from benchmarks.compare.studies import barrier
from benchmarks.compare.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (barrier.STUDY,)}
