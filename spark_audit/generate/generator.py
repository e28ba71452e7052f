"""Makes ledgers with planted faults: a folder with a mesh file, ledgers, and what was planted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from spark_audit.generate.doubts import DOUBTS
from spark_audit.generate.faults import FAULTS
from spark_audit.generate.files import ROWS_OF_A_FILE, write_ledgers, write_mesh
from spark_audit.generate.harmless import HARMLESS, SHAPES
from spark_audit.generate.planted import Planted
from spark_audit.generate.planting import Planting
from spark_audit.generate.world import make_world
from spark_audit.period import Period

KINDS = {**SHAPES, **FAULTS, **HARMLESS, **DOUBTS}
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
    harmless kind, none that leaves the day unproven. Raises BadFault, FileExistsError.
    """
    everything = (*SHAPES, *FAULTS, *HARMLESS)
    kinds = [kind for one in faults for kind in (everything if one == "all" else (one,))]
    for kind in kinds:
        if kind not in KINDS:
            raise BadFault(kind)
    kinds.sort(key=list(KINDS).index)
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
    stage, what = kind.split("-", 1) if kind.startswith(("packed-", "linked")) else ("", kind)
    files = sorted((sites / site / "ledger").glob(f"date=*/{stage or 'delivered'}-*.parquet"))
    # Neither the first nor the last: what is before and behind tells that it is missing.
    file = files[planting.chance.randrange(1, len(files) - 1)]
    named.append(site if what in ("file-missing", "ledger-ends") else file.name)
    if what == "file-missing":
        file.unlink()
    elif what == "ledger-ends":
        for later in files[files.index(file) :]:
            later.unlink()
    elif what == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    elif what == "corrupt":
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 200] = planting.chance.randbytes(200)
        file.write_bytes(bytes(content))
    elif what == "file-twice":
        twin = file.with_name(f"copy-of-{file.name}")
        shutil.copyfile(file, twin)
        named[-1] = twin.name
