"""Fetches axe-core, which the tests of the page examine its views with, into .tools/page, once and
held to its hash.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
ADDRESS = f"https://registry.npmjs.org/axe-core/-/axe-core-{VERSION}.tgz"


def main(folder: Path) -> int:
    """Fetch the script unless the folder has it; return the exit status."""
    script = folder / f"axe-{VERSION}.min.js"
    if script.exists():
        return 0
    try:
        with urllib.request.urlopen(ADDRESS, timeout=60) as response:
            archive: bytes = response.read()
    except OSError as error:
        print(f"{ADDRESS}: {error}", file=sys.stderr)
        return 1
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != SHA512:
        print(f"{ADDRESS} is not what it was: its SHA-512 is another", file=sys.stderr)
        return 1
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile("package/axe.min.js")
        assert member is not None
        partial = script.with_suffix(".part")
        partial.write_bytes(member.read())
    partial.replace(script)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1] / ".tools" / "page"))
