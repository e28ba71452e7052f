"""Why a site that was to have a message has no row of it."""

from __future__ import annotations

from spark_audit.judge.positions import SEQUENCE_BITS, FlowAt, Positions, SeenIncarnation
from spark_audit.period import milliseconds
from spark_audit.trace.search import LedgerSearch, Row


class Absence:
    """Looked for in the files of these dates, first and last."""

    def __init__(self, search: LedgerSearch, dates: tuple[str, str]) -> None:
        self._search = search
        self._dates = dates

    def why(self, site: str, row: Row) -> str:
        """Of the site, by name, and the row of its origin that packed it."""
        files = [
            file
            for file in self._search.of_stage("delivered", dates=self._dates)
            if file.site == site
        ]
        if not files:
            return "was to have it, and has no ledger for this time: cannot be told"
        flow = (row["origin"], row["exchange"], row["lane"])
        rows = list(
            self._search.matching(
                files,
                [
                    *("state", "event", "origin", "exchange", "lane", "incarnation"),
                    *("incarnation_sequence", "recorded", "stage"),
                ],
                [("stage", "=", "delivered")],
            )
        )
        until = max((one["recorded"] for one in rows), default=None)
        if until is None:
            return "was to have it, and its ledger has no row that can be read: cannot be told"
        states = {one["state"] for one in rows}
        first = min(rows, key=lambda one: one["recorded"])["state"]
        positions = Positions.of(
            self._seen(row),
            [
                (
                    FlowAt(site, *flow),
                    one["incarnation"].hex(),
                    one["incarnation_sequence"] - (one["event"] != "through"),
                )
                for one in rows
                if (one["origin"], one["exchange"], one["lane"]) == flow
                and one["state"] == first
                and one["event"] in ("through", "batch", "void", "quarantined")
                and one["incarnation"] is not None
                and one["incarnation_sequence"] is not None
            ],
        )
        rank = positions.rank.get((row["origin"], row["incarnation"].hex()), 0)
        passed = positions.passed.get(FlowAt(site, *flow))
        if passed is not None and rank << SEQUENCE_BITS | row["incarnation_sequence"] <= passed:
            return (
                "lost: was to have it, is done with later batches of its origin, and never had it"
            )
        if len(states) > 1:
            return "was to have it; its state folder was made anew since: cannot be told"
        return (
            f"was to have it, has no row of it, and tells up to {until:%Y-%m-%d %H:%M:%S}: pending"
        )

    def _seen(self, row: Row) -> list[SeenIncarnation]:
        """The rows of each of the origin's runs, by its own ledger."""
        files = [
            file
            for file in self._search.of_stage("packed", dates=self._dates)
            if file.site == row["site"]
        ]
        columns = ["origin", "incarnation", "state", "number", "recorded"]
        conditions = [("stage", "=", "packed"), ("origin", "=", row["origin"])]
        return [
            SeenIncarnation(
                *(one["origin"], one["incarnation"].hex(), one["state"], one["number"]),
                milliseconds(one["recorded"]),
            )
            for one in self._search.matching(files, columns, conditions)
            if one["incarnation"] is not None
        ]
