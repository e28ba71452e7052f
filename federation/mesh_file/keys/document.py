"""Keys of the mesh file: types, defaults and meaning, as written.

Values are checked singly here; `rules` checks them together, and `resolution` derives the mesh. The
texts are the operator's documentation: docs/mesh-file.md and the JSON Schema are made from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from federation.mesh import OLDEST_BATCH_FORMAT
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.lane_values import Lanes, MaxRate
from federation.mesh_file.keys.site_keys import BranchesKeys, LogKeys, SiteKeys
from federation.mesh_file.keys.topology_keys import (
    LinkKeys,
    ShortTopology,
    TopologyKeys,
    whole_topology,
)
from federation.mesh_file.keys.values import (
    PLAIN_NAME,
    BatchFormat,
    Duration,
    OneOrMore,
    PublicKeys,
    Section,
    empty_for_nothing,
    key,
    listed,
    none_for_nothing,
)

DEFAULT_OUTAGE_WINDOW = "72h"

_Sites = dict[
    str,
    Annotated[SiteKeys, BeforeValidator(empty_for_nothing, json_schema_input_type=SiteKeys | None)],
]
_Includes = Annotated[
    list[str], BeforeValidator(listed, json_schema_input_type=str | list[str] | None)
]
_Branches = Annotated[
    list[BranchesKeys],
    BeforeValidator(listed, json_schema_input_type=BranchesKeys | list[BranchesKeys] | None),
]


class SiteListKeys(Section):
    """An included file: sites, and nothing else."""

    sites: Annotated[_Sites, BeforeValidator(empty_for_nothing)] = key({}, "as in the mesh file")
    branches: _Branches = key([], "as in the mesh file")
    include: _Includes = key([], "further files, relative to this one")


class MeshKeys(Section):
    """The whole file. `sites`, `branches` and `include` together name the sites."""

    mesh: str = key(
        ...,
        "name of the mesh, part of every name on the brokers",
        schema={"pattern": f"^{PLAIN_NAME}$"},
    )
    outage_window: Duration = key(
        DEFAULT_OUTAGE_WINDOW,
        "the longest outage to recover from without help",
        unit="1s to 366d",
        trades="longer: more disk at every site, for the log and for the barrier's memory",
    )
    topology: (
        Annotated[
            TopologyKeys,
            BeforeValidator(whole_topology, json_schema_input_type=ShortTopology | TopologyKeys),
        ]
        | None
    ) = key(None, "the shape of the mesh", without="the `links`, as with custom")
    both: bool | None = key(
        None, "ring and custom: links go both ways", without="one way, unless a link has `both`"
    )
    links: Annotated[
        list[LinkKeys],
        BeforeValidator(none_for_nothing, json_schema_input_type=list[LinkKeys] | None),
    ] = key([], "custom: the links; otherwise the particulars of some of them")
    exchanges: Annotated[
        list[ExchangeKeys],
        BeforeValidator(none_for_nothing, json_schema_input_type=list[ExchangeKeys] | None),
    ] = key([], "exchanges that the mesh spans")
    sites: _Sites = key(
        {},
        "sites by name; a name without keys has all defaults and a private broker",
        schema={"propertyNames": {"pattern": f"^{PLAIN_NAME}$"}},
    )
    branches: _Branches = key([], "groups of sites that are alike")
    include: _Includes = key([], "files of more sites, relative to this one")
    log: LogKeys = key({}, "disk space of each site's log, unless the site has its own")
    lanes: Lanes | None = key(
        None,
        "classes of messages that share each link, the first before all others; a list, or "
        "with the weights by which they share a `max_rate`. An exchange names its `lane`",
        trades="more: each takes a connection of its own at both ends of each link",
        without="none: a single lane",
    )
    max_rate: MaxRate | None = key(
        None,
        "rate of each link without one of its own; by the clock of the sending site: "
        '`{default: 20Mbit/s, "22:00-06:00": unlimited}`',
        trades="less: others have more of the line, and a backlog takes longer",
        without="unlimited",
    )
    batch_format: BatchFormat = key(
        OLDEST_BATCH_FORMAT,
        "format in which batches are written; every node reads each of these",
        trades=(
            "2 has room for additions of later versions. Nodes of the first release cannot"
            " read it: set it once all are upgraded"
        ),
    )
    signing: Literal["none", "ed25519"] = key(
        "none",
        "signing of batches by each site, so that no site on the way can alter them or send "
        "others in its name",
        trades="ed25519: a fifth of a millisecond of CPU a batch at each site, and keys to look "
        "after; needs `batch_format: 2` and a `public_key` at each site",
    )
    unsigned: Literal["refuse", "accept"] | None = key(
        None,
        "with signing: treatment of batches without a signature, which a mesh that begins to "
        "sign has in its logs for an outage window",
        trades="accept: any site can still send in the name of any other",
        without="refuse: they go into the quarantine",
    )
    repairs_from: OneOrMore | None = key(
        None,
        "with signing: sites, or tags of sites, whose repairs the others take. A repair sends"
        " messages in the names of other sites, which only the repairing site vouches for",
        trades=(
            "more: lost messages are found at more sites, and each of these may send in any name"
        ),
        without="with signing none, without it all",
    )
    revoked_keys: PublicKeys | None = key(
        None,
        "with signing: public keys that may be stolen. All batches signed with them go into "
        "the quarantine, also those that the site itself had signed",
        trades=(
            "a key that is only removed from its site is still trusted for an outage "
            "window, since batches signed with it are on their way"
        ),
        without="none",
    )


def section_at(location: tuple[str | int, ...]) -> type[Section] | None:
    """Return the section whose keys stand at a place of the file, or None if no keys belong
    there.
    """
    found: Any = MeshKeys
    for step in location:
        found = _below(found, step)
    return _section_of(found)


def _below(annotation: Any, step: str | int) -> Any:
    section = _section_of(annotation)
    if section is not None:
        for name, field in section.model_fields.items():
            if step in (name, field.alias):
                return field.annotation
        return None
    for argument in getattr(annotation, "__args__", ()):
        origin = getattr(annotation, "__origin__", None)
        if origin in (list, dict):
            return annotation.__args__[-1]
        found = _below(argument, step)
        if found is not None:
            return found
    return None


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if getattr(annotation, "__origin__", None) in (list, dict):
        return None
    for argument in getattr(annotation, "__args__", ()):
        found = _section_of(argument)
        if found is not None:
            return found
    return None
