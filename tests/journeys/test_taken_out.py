"""An exchange is taken out of the mesh file while messages of it are on their way to a site."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import MeshFactory


@pytest.mark.slow
async def test_what_was_under_way_is_delivered_though_apply_has_narrowed_the_rights(
    live_mesh: MeshFactory,
) -> None:
    exchanges = [{"name": "orders"}, {"name": "news"}]
    mesh = await live_mesh("paris", "tokyo", topology="complete", exchanges=exchanges)
    await mesh.listen(["tokyo"], "news")
    mesh.start_each()
    await mesh.running()
    assert mesh.stop("tokyo") == 0
    await mesh.source("paris", "news").publish(50)
    mesh.document["exchanges"] = exchanges[:1]
    mesh.write()
    await mesh.apply()
    mesh.start(["tokyo"])
    await mesh.running()
    await mesh.arrived()
    mesh.check(most_flags=0)
    user = mesh.book.deliverer("tokyo").user
    rights = await mesh.vhosts["tokyo"].api("GET", f"/permissions/{{vhost}}/{user}")
    assert "news" in rights["write"]
