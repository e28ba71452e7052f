"""The audit that a repair ends with: of the same time as the first, asked in the same way. Pure."""

from __future__ import annotations

from pathlib import Path

from isthmus.repair.lost import AuditFolder

AFTER = "after-repair"
"""Where its report goes, in the folder of the first one's."""


def second_audit(
    folder: AuditFolder, file: Path, out: Path, state: Path, master: str | None
) -> list[str]:
    """What follows `isthmus` on its command line. `master` is another than the first audit's."""
    report = folder.report
    # What an earlier day had left open may have been published before the audited time.
    begin = min([report["from"], *(one.published for one in folder.lost if one.published)])
    asked = {**folder.asked, **({"master": master} if master else {})}
    asked.setdefault("ledger", report["ledger"])
    return [
        *("audit", str(file), "--from", begin, "--to", report["to"]),
        *("--level", report["level"]),
        *(word for option, value in asked.items() for word in (f"--{option}", value)),
        *("--out", str(out), "--state", str(state), "--json"),
    ]
