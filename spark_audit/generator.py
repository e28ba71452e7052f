"""Makes ledgers with planted faults: a folder with a mesh file, ledgers, and what was planted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from spark_audit.made_files import ROWS_OF_A_FILE, write_ledgers, write_mesh
from spark_audit.made_world import make_world
from spark_audit.period import Period
from spark_audit.planted import Planted
from spark_audit.planted_faults import DAMAGE, FAULTS, HARMLESS, Planting

KINDS = {**FAULTS, **HARMLESS, **DAMAGE}
_ENOUGH = 3
"""Messages that a batch has to have to be worth a fault."""


class BadFault(ValueError):
    """There is no such fault."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no fault {kind!r}; there are: {', '.join(KINDS)}; all")
        self.kind = kind


def generate_ledgers(
    out: Path,
    sites: int,
    messages: int,
    seed: int,
    period: Period,
    faults: Iterable[str],
    at_rows: int = ROWS_OF_A_FILE,
) -> Planted:
    """OUT/mesh.yaml, OUT/sites/SITE/ledger, OUT/planted.json. `all` is every finding and every
    harmless kind, none that damages the ledgers. Raises BadFault, FileExistsError.
    """
    kinds = [kind for one in faults for kind in ((*FAULTS, *HARMLESS) if one == "all" else (one,))]
    for kind in kinds:
        if kind not in KINDS:
            raise BadFault(kind)
    _, mesh = write_mesh(out, sites)
    world = make_world(mesh, "orders", messages, seed, period.from_ms, period.to_ms)
    free = [batch for batch in world.batches if batch.packed.row.count >= _ENOUGH]
    planting = Planting(world, random.Random(f"faults {seed}"), Planted(), free)
    for kind in kinds:
        KINDS[kind](planting)
    write_ledgers(world, out / "sites", at_rows)
    for kind, site in planting.planted.damage:
        _damage(out / "sites", site, kind, planting)
    planting.planted.write(out / "planted.json")
    return planting.planted


def _damage(sites: Path, site: str, kind: str, planting: Planting) -> None:
    named = planting.planted.not_proven
    if kind == "ledger-missing":
        shutil.rmtree(sites / site)
        named.append(site)
        return
    files = sorted((sites / site / "ledger").glob("date=*/delivered-*.parquet"))
    # Neither the first nor the last: what is before and behind tells that it is missing.
    file = files[planting.chance.randrange(1, len(files) - 1)]
    named.append(site if kind == "file-missing" else file.name)
    if kind == "file-missing":
        file.unlink()
    elif kind == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    elif kind == "corrupt":
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 200] = planting.chance.randbytes(200)
        file.write_bytes(bytes(content))
    elif kind == "file-twice":
        twin = file.with_name(f"copy-of-{file.name}")
        shutil.copyfile(file, twin)
        named[-1] = twin.name
