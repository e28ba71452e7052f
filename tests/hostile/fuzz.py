"""Fuzzing of the decoders, guided by coverage: `make fuzz MINUTES=10`.

    python -m tests.hostile.fuzz [DECODER...] [--minutes 10] [--jobs 1]

Each decoder is fuzzed by a process of its own, which begins with its corpus and the seeds, and may
use so much memory and time for one input. What it finds is added to the corpus, one line of hex an
input, so that the tests try it from then on: the inputs that reach the most code with the fewest
bytes, and, at the end of the file, every one that was a finding. Exit 1: something was found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.hostile.decoders import CORPUS, DECODERS, corpus
from tests.hostile.seeds import seeds

MEMORY_MB = 1024
"""Of a process with all of its imports, beside which a block of the greatest size may be opened."""
INPUT_S = 10
LONGEST = 4096
MOST_KEPT = 400
"""Inputs of a decoder's corpus: each costs a test some tens of microseconds."""


def fuzz(name: str, minutes: float) -> list[bytes]:
    """The findings. The corpus has what reached something new, and is no larger than it must be."""
    with tempfile.TemporaryDirectory(prefix=f"isthmus-fuzz-{name}-") as temporary:
        folder = Path(temporary)
        before, found, kept = (folder / one for one in ("before", "found", "kept"))
        for one in (before, found, kept):
            one.mkdir()
        _write(before, [*corpus(name), *seeds(name)])
        _libfuzzer(name, folder, f"-max_total_time={int(60 * minutes)}", str(before))
        _libfuzzer(name, folder, "-merge=1", str(kept), str(before))
        findings = [one.read_bytes() for one in sorted(found.iterdir())]
        inputs = sorted({one.read_bytes() for one in kept.iterdir()}, key=_by_length)
    _keep(name, inputs[:MOST_KEPT], findings)
    return findings


def _by_length(raw: bytes) -> tuple[int, bytes]:
    return len(raw), raw


def _libfuzzer(name: str, folder: Path, *options: str) -> None:
    log = folder / "log"
    with log.open("ab") as out:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "tests.hostile.fuzz_one", name),
                f"-artifact_prefix={folder / 'found'}/",
                *(f"-rss_limit_mb={MEMORY_MB}", f"-timeout={INPUT_S}", f"-max_len={LONGEST}"),
                *options,
            ],
            stdout=out,
            stderr=out,
            check=False,
        )
    if ended.returncode and not any((folder / "found").iterdir()):
        raise RuntimeError(f"{name}: {log.read_text(errors='replace')[-4000:]}")


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    for number, raw in enumerate(inputs):
        (folder / f"{number:05}").write_bytes(raw)


def _keep(name: str, inputs: Sequence[bytes], findings: Sequence[bytes]) -> None:
    file = CORPUS / f"{name}.hex"
    former = file.read_text().partition("# findings\n")[2].splitlines() if file.exists() else []
    lines = ["# inputs", *(raw.hex() for raw in inputs), "# findings", *former]
    lines += [raw.hex() for raw in findings if raw.hex() not in former]
    CORPUS.mkdir(exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("decoders", nargs="*", metavar="DECODER", help=", ".join(DECODERS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = options.decoders or list(DECODERS)
    if unknown := set(chosen) - set(DECODERS):
        parser.error(f"no such decoder: {', '.join(unknown)}; they are {', '.join(DECODERS)}")
    total = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, findings in zip(
            chosen, pool.map(partial(fuzz, minutes=options.minutes), chosen), strict=True
        ):
            total += len(findings)
            said = f"{len(findings)} findings" if findings else "nothing found"
            print(f"{name}: {said}, {len(corpus(name))} inputs kept", flush=True)
            for raw in findings:
                print(f"  {raw.hex()}", flush=True)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
