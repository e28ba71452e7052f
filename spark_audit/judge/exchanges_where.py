"""In which revisions an exchange had a property. Pure.

What the mesh file says of an exchange may change within a day: `scope`, `order`. Each batch goes by
what was said in the revision that it bears.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExchangesWhere:
    """`always`: names of exchanges of which it holds in each revision. `at_times`: others -> the
    revisions in which it holds.
    """

    always: tuple[str, ...] = ()
    at_times: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Mapping[str, bool]]) -> ExchangesWhere:
        """Of exchange -> revision -> whether it holds."""
        held = {name: [r for r, holds in by.items() if holds] for name, by in told.items()}
        return cls(
            tuple(sorted(name for name, by in told.items() if by and len(held[name]) == len(by))),
            {
                name: tuple(sorted(revisions))
                for name, revisions in sorted(held.items())
                if 0 < len(revisions) < len(told[name])
            },
        )

    def always_holds(self) -> str:
        """As SQL over the column `exchange`: in whatever revision."""
        return f"exchange IN ({_texts(self.always)})" if self.always else "false"

    def holds(self) -> str:
        """As SQL over the columns `exchange` and `revision`, never null."""
        parts = [self.always_holds()] if self.always else []
        parts += [
            f"(exchange = {_texts([name])} AND coalesce(revision IN ({_texts(revisions)}), false))"
            for name, revisions in self.at_times.items()
        ]
        return f"({' OR '.join(parts)})" if parts else "false"


def _texts(values: Collection[str]) -> str:
    """As literals of SQL."""
    return ", ".join("'" + one.replace("\\", "\\\\").replace("'", "\\'") + "'" for one in values)
