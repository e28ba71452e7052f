"""docs/operations.md tells every header that the relay sets, as the program has them."""

from __future__ import annotations

import re
from pathlib import Path

from relay.batches import mesh_headers
from relay.batches.mesh_headers import DELIVERED, FORGEABLE_PREFIX, PUT_ASIDE

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "operations.md").read_text()


def test_the_page_has_each_header_with_what_it_says() -> None:
    section = PAGE.split("\n## Headers\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    assert rows == [(name.decode(), text) for name, text in (DELIVERED | PUT_ASIDE).items()]


def test_each_header_has_a_row_and_no_other_module_spells_one() -> None:
    names = {value for name, value in vars(mesh_headers).items() if name.endswith("_HEADER")}
    assert names == DELIVERED.keys() | PUT_ASIDE.keys()
    spelt = {
        str(file.relative_to(TOP))
        for file in (TOP / "relay").rglob("*.py")
        if re.search(rb'b"' + re.escape(FORGEABLE_PREFIX), file.read_bytes())
    }
    assert spelt == {"relay/batches/mesh_headers.py"}
