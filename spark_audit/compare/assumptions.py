"""Facts that every step of an audit needs before rows are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from federation.mesh import Mesh
from spark_audit.frames import Keep, small_table
from spark_audit.judge.expectation import ExchangesWhere, Revisions
from spark_audit.judge.positions import SeenIncarnation
from spark_audit.ledgers.books import Books
from spark_audit.level import Level
from spark_audit.period import Period

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(slots=True)
class Assumptions:
    """Facts of one audit. `mesh`: the present mesh; `names`: cluster ID -> site name; `clusters`:
    site name -> cluster ID; `by_origin`: exchanges whose identities are unique within an origin
    only.
    """

    spark: SparkSession
    mesh: Mesh
    period: Period
    level: Level
    revisions: Revisions
    books: Books
    keep: Keep
    incarnations: Sequence[SeenIncarnation] = ()
    """Incarnations that earlier audits saw, whose files stay closed."""
    names: dict[str, str] = field(init=False)
    clusters: dict[str, str] = field(init=False)
    by_origin: ExchangesWhere = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.revisions.site_names()
        self.clusters = {name: cluster for cluster, name in self.names.items()}
        self.by_origin = self.revisions.scoped_by_origin()

    @property
    def former(self) -> set[str]:
        """Names of sites that have left the mesh."""
        return set(self.clusters) - set(self.mesh.sites)

    def frame(self, rows: Iterable[Sequence[Any]], columns: Mapping[str, str]) -> DataFrame:
        """Return a small table of the driver as a DataFrame, see `small_table`."""
        return small_table(self.spark, rows, columns)

    def cluster_of(self, column: str = "site") -> Column:
        """Map a column of site names to cluster IDs; a site in no revision stays as named."""
        from pyspark.sql import functions as F  # noqa: N812

        pairs = [F.lit(part) for pair in self.clusters.items() for part in pair]
        if not pairs:
            return F.col(column)
        return F.coalesce(F.create_map(*pairs)[F.col(column)], F.col(column))

    def is_one_of(self, column: str, sites: Iterable[str]) -> Column:
        """True if a column of cluster IDs has one of `sites`, given by name."""
        from pyspark.sql import functions as F  # noqa: N812

        named = list(sites)
        known = [cluster for cluster, name in self.names.items() if name in named] + named
        return F.col(column).isin(*known) if known else F.lit(False)

    def touches_period(self, first: str = "first_ms", last: str = "last_ms") -> str:
        """Return SQL: true if a row may have messages published in the period."""
        return f"{last} >= {self.period.from_ms} AND {first} < {self.period.to_ms}"
