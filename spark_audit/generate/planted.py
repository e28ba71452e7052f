"""What was planted into made ledgers, to be compared with what an audit finds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class PlantedFinding:
    """As the audit is to report it: hexadecimal identity (of a loop, nothing), site names."""

    kind: str
    identity: str
    origin: str
    destination: str


@dataclass(slots=True)
class Planted:
    findings: list[PlantedFinding] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    """Verdicts that are no findings, and how many messages have them."""
    not_proven: list[str] = field(default_factory=list)
    """What the reasons have to name: a site, a file."""
    damage: list[tuple[str, str]] = field(default_factory=list)
    """(kind, site) of what is done to the files once they are written."""

    def write(self, file: Path) -> None:
        content = {
            "findings": [asdict(one) for one in sorted(self.findings)],
            "explained": dict(self.explained),
            "not_proven": self.not_proven,
        }
        file.write_text(json.dumps(content, indent=1) + "\n")
