"""JSON Schema of mesh files, and docs/mesh-file.md, made from the same keys. Pure.

A schema cannot express all that `isthmus validate` checks: the known sites, reachability. Its
extensions: `x-type` (form of a text), `x-unit`, `x-trades` (cost and benefit of another value),
`x-without` (effect of leaving the key out).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from federation.mesh_file.keys.document import MeshKeys, SiteListKeys


class _Plain(GenerateJsonSchema):
    """Generator without titles, which repeat the keys."""

    def field_title_should_be_set(self, schema: core_schema.CoreSchema) -> bool:
        return False


def mesh_schema() -> dict[str, Any]:
    """Return the schema of mesh files."""
    return _schema(MeshKeys, "An Isthmus mesh file", "mesh-file")


def site_list_schema() -> dict[str, Any]:
    """Return the schema of a file that a mesh file includes."""
    return _schema(SiteListKeys, "Sites that an Isthmus mesh file includes", "site-list")


def _schema(model: type[MeshKeys] | type[SiteListKeys], title: str, name: str) -> dict[str, Any]:
    made = model.model_json_schema(schema_generator=_Plain)
    for section in made.get("$defs", {}).values():
        section.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:isthmus:{name}",
        **made,
        "title": title,
    }


BEFORE = """
# The mesh file

<!-- Made by `isthmus schema --page`; a test says when it is out of date. -->

One YAML file declares the whole mesh. `isthmus validate FILE` reports all mistakes of a file at
once, each as `FILE:LINE:COLUMN: what is wrong; how to mend it`; warnings do not prevent its use.
`isthmus schema` prints the JSON Schema, by which an editor completes keys and marks mistakes; the
schema of this version is [mesh.schema.json](../topology_configs/mesh.schema.json). Many editors
need the first line `# yaml-language-server: $schema=mesh.schema.json`, with the path to that file.

```yaml
mesh: acme
outage_window: 72h
topology: {hub: head}
exchanges:
  - {name: sales, from: [shops], to: [head]}
  - {name: store, from: [head], to: [shops], keys: ["store.#"]}
sites:
  head: {}
branches:
  names: [oslo, rome, bari]
  template:
    tags: [shops]
    wants: {store: ["store.{site}.#"]}
```

Meshes to start from are in [topology_configs](../topology_configs). In the tables below a default
in _slanted letters_ describes the effect of leaving the key out.

## How values are written

- A **duration** is a number and one unit: `250ms`, `90s`, `30m`, `72h`, `7d`.
- A **size** is a number and one unit: `B`, `KB`, `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`,
  `GiB`, `TiB` (powers of 1024). A rate is a size and `/s`: `200KB/s`.
- A **`max_rate`** is a rate in bytes (`2MB/s`) or bits (`20Mbit/s`, `512kbit/s`, `1Gbit/s`), at
  least `16kbit/s`; or `unlimited`; or a mapping of `default` and hours of the day to such:
  `{default: 20Mbit/s, "22:00-06:00": unlimited}`, by the clock of the machine that sends.
- **Sites and tags**: `from`, `to`, `never_via` and `hub` take names of sites, and tags, which
  stand for all sites that have them. A word is a site if a site has this name, otherwise a tag; no
  tag may have the name of a site. A tag is only short for its sites.
- **Names** of a mesh, of sites, of lanes and of tags are 1 to 63 letters, digits, `-` and `_`, and
  begin with a letter or digit. `from`, `to` and `all` are reserved.
- `{site}` in a text of a site is replaced by the site's name; `{{` and `}}` are braces.
- **Paths** are relative to the file that contains them.
- The YAML is plain: `true`, `false`, `null`, decimal numbers and text; no tags (`!x`), no merge
  keys (`<<`). Repeated keys are refused. A file has at most 1 MiB.

The resolved mesh has a **revision**, a hash that every batch carries. Comments, the order of keys,
the division into files, tags and templates do not change the hash, nor does a default written out.
"""

SECTIONS = (
    ("MeshKeys", "## The mesh", ""),
    (
        "TopologyKeys",
        "## Topology",
        "The order of a ring is that of `sites`, then of `branches`, then of included files. In "
        "any topology `links` says what is special about links that the topology makes; with "
        "`custom`, or without `topology`, it makes the links itself.",
    ),
    ("RingKeys", "### Ring", ""),
    ("TreeKeys", "### Tree", ""),
    ("HubKeys", "### Hub", ""),
    ("MulticastKeys", "### Multicast", "See [multicast.md](multicast.md)."),
    ("LinkKeys", "## Links", ""),
    ("ExchangeKeys", "## Exchanges", ""),
    ("RetryKeys", "### Retry", ""),
    (
        "SiteKeys",
        "## Sites",
        "A site whose broker is a cluster has the addresses of its nodes in `broker`, and in "
        "`stream` and `management` where these are not the defaults. A connection tries them in "
        "turn, beginning with the one that worked last; different connections begin at different "
        "nodes, and wait before they try again only when none has answered. A name with several "
        "addresses counts as several. The log is written and read at its leader, wherever the "
        "cluster has moved it: [operations](operations.md), *Sites on clusters*.",
    ),
    (
        "ClusterKeys",
        "### Cluster",
        "For a site of several nodes: see [cluster.md](cluster.md). A change is taken up when a "
        "node starts.",
    ),
    ("ZookeeperKeys", "### ZooKeeper", ""),
    ("CassandraKeys", "### Cassandra", ""),
    (
        "ContentKeys",
        "### Content",
        "For a site with `cluster`; off by default. It is for logs that must stay small: see "
        "[cluster.md](cluster.md), *Large messages*. A change is taken up by a running node.",
    ),
    ("TlsKeys", "### TLS", ""),
    (
        "AdminKeys",
        "### Admin",
        "Any address but one of loopback wants https and a token; see [TLS](tls.md).",
    ),
    (
        "LogKeys",
        "### Log",
        "Keys that a site leaves out are those of the mesh. The broker frees whole segments of "
        "64 MiB, so that 256 MiB is the least. When what neighbours or the site's own delivery "
        "still lack takes 80 % of `max_bytes`, status warns; at 90 % a site with `on_full: block` "
        "takes no more messages from its egress queues, until that is below 70 %.",
    ),
    (
        "BranchesKeys",
        "## Branches",
        "A mistake that the template makes for most of its branches is told once, at the template; "
        "one of some branches at their names, or at their cells of the table. The table is CSV as "
        "spreadsheets write it: commas, double quotes round what has a comma in it, UTF-8. Blank "
        "lines and lines that begin with `#` are passed over.",
    ),
    (
        "SiteListKeys",
        "## Included files",
        "A file may be included once. Its sites stand in the mesh as if they were written there.",
    ),
)
"""Section of the schema, heading, and further text."""

AFTER = """
## What is refused

Besides unknown keys and bad values, these are refused: unknown sites; two sites with the same
cluster ID, or the same broker and virtual host; a list of addresses that is empty, repeats an
address, or mixes users, virtual hosts, or addresses with and without TLS; a ring of fewer than
three sites, a tree with a circle or two roots; a link of a site with itself; an exchange without a
way from its `from` to its `to` when the sites of `never_via` are left out; direct exchanges without
keys; `wants` of exchanges without keys; an outage window that `max_bytes` cannot hold at the given
`rate`. Without a `rate` the growth of a log is unknown here: `isthmus plan FILE --rate` shows it.
"""


Schema = dict[str, Any]


def mesh_reference() -> str:
    """Return the whole page, in Markdown."""
    schema, included = mesh_schema(), site_list_schema()
    sections = {**schema["$defs"], "MeshKeys": schema, "SiteListKeys": included}
    parts = [BEFORE.strip()]
    for name, heading, text in SECTIONS:
        parts.append("\n".join(_section(heading, text, sections[name])))
    return "\n\n".join([*parts, AFTER.strip()]) + "\n"


def _section(heading: str, text: str, section: Schema) -> Iterator[str]:
    yield heading
    yield ""
    yield " ".join(section["description"].split())
    if text:
        yield ""
        yield text.strip()
    properties: dict[str, Schema] = section.get("properties", {})
    if not properties:
        return
    yield ""
    yield "| key | type | default | what it is | what it trades |"
    yield "|---|---|---|---|---|"
    required = section.get("required", [])
    for key, value in properties.items():
        cells = (
            f"`{key}`",
            _type(value) + (f", {value['x-unit']}" if "x-unit" in value else ""),
            "**needed**" if key in required else _default(value),
            value["description"],
            value.get("x-trades", ""),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(value: Schema) -> str:
    if "x-type" in value:
        return str(value["x-type"])
    if "$ref" in value:
        return _link(value["$ref"])
    if "anyOf" in value:
        kinds = [_type(kind) for kind in value["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return " or ".join(f"`{word}`" for word in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    match value.get("type"):
        case "array":
            return f"list of {_type(value['items'])}"
        case "object":
            inner = value.get("additionalProperties")
            return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
        case "string":
            return "text"
        case "boolean":
            return "true or false"
        case "integer":
            low, high = value.get("minimum"), value.get("maximum")
            return f"whole number, {low} to {high}" if None not in (low, high) else "whole number"
    return str(value.get("type", "anything"))


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    for section, heading, _ in SECTIONS:
        if section == name:
            words = heading.lstrip("# ")
            anchor = "".join(c for c in words.lower().replace(" ", "-") if c.isalnum() or c in "-_")
            return f"[{words}](#{anchor})"
    return "`{}`"


def _default(value: Schema) -> str:
    if "x-without" in value:
        return f"_{value['x-without']}_"
    default = value.get("default")
    if default in (None, [], {}):
        return "none"
    if isinstance(default, str):
        return f"`{default}`"
    if isinstance(default, list) and all(isinstance(item, str) for item in default):
        return f"`[{', '.join(default)}]`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{json.dumps(default)}`"
