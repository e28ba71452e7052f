"""docs/mesh-file.md and the JSON Schema are those of the keys that the reader takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from federation.mesh_file import parse_mesh
from federation.mesh_file.reference import (
    SECTIONS,
    mesh_reference,
    mesh_schema,
    site_list_schema,
)
from isthmus.cli import app

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "mesh-file.md"
MESHES = sorted((TOP / "topology_configs").glob("*.yaml"))
OTHERS = sorted((*TOP.glob("docker/mesh/mesh*.yaml"), *TOP.glob("examples/*/mesh.yaml")))
EXAMPLES = [*MESHES, *OTHERS]
SCHEMA = mesh_schema()


def problems(document: Any, schema: dict[str, Any] = SCHEMA) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(document)]


def test_the_page_is_current() -> None:
    made = mesh_reference()
    assert PAGE.read_text() == made, "run: .venv/bin/isthmus schema --page > docs/mesh-file.md"


@pytest.mark.parametrize(
    ("file", "schema", "command"),
    [
        ("mesh.schema.json", SCHEMA, "schema"),
        ("site-list.schema.json", site_list_schema(), "schema --included"),
    ],
)
def test_the_schemas_for_editors_are_current(
    file: str, schema: dict[str, Any], command: str
) -> None:
    path = f"topology_configs/{file}"
    found = json.loads((TOP / path).read_text())
    assert found == schema, f"run: .venv/bin/isthmus {command} > {path}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(TOP)))
def test_the_first_line_of_an_example_leads_an_editor_to_the_schema(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    [schema] = re.findall(r"# yaml-language-server: \$schema=(\S+)", first)
    assert (path.parent / schema).resolve() == TOP / "topology_configs" / "mesh.schema.json"


def test_the_page_has_every_section_and_every_key_says_what_it_is() -> None:
    sections = {"MeshKeys": SCHEMA, "SiteListKeys": site_list_schema(), **SCHEMA["$defs"]}
    assert set(sections) - {"NoKeys"} == {name for name, _, _ in SECTIONS}
    for name, section in sections.items():
        assert section["description"], name
        for key, value in section.get("properties", {}).items():
            assert value.get("description"), f"{name}: {key}"


def test_the_example_of_the_page_is_good() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert parse_mesh(text.encode(), "mesh-file.md").problems == ()


def test_the_anchors_and_files_that_the_page_leads_to_are_there() -> None:
    page = PAGE.read_text()
    headings = {line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    assert set(re.findall(r"\]\(#([a-z-]+)\)", page)) <= headings
    for path in re.findall(r"\]\((?!#)([^)]+)\)", page):
        assert (PAGE.parent / path).exists()


def test_the_schema_is_one() -> None:
    for schema in (SCHEMA, site_list_schema()):
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", MESHES, ids=lambda path: path.name)
def test_every_mesh_to_start_from_fits_the_schema(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "{mesh: m, topology: {hub: [a, b]}, sites: {a: , b: {}}}",
        "{mesh: m, topology: {tree: a}, sites: {a: , b: {parent: a, hub: x, availability: '0.9'}}}",
        "{mesh: m, topology: {multicast: {group: '239.1.2.3:7400', key: 'env:K', rate: 1MB/s,"
        " replayers: a}}}",
        "{mesh: m, topology: complete, include: more.yaml, branches: [{file: x.csv}]}",
        "{mesh: m, branches: {names: [x], template: {availability: '{up}', broker: '{url}'}}}",
        "{mesh: m, log: {max_bytes: 20GB, on_full: gap, rate: 1.5MB/s}, outage_window: 250ms}",
        "{mesh: m, exchanges: [{name: o, identity: 'header:x', retry: {backoff: [1s, 2m]}}]}",
    ],
)
def test_what_is_written_as_it_should_be_fits_the_schema(text: str) -> None:
    assert problems(yaml.safe_load(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "{topology: ring}",
        "{mesh: m, outage_windw: 72h}",
        "{mesh: m, outage_window: 72}",
        "{mesh: m, outage_window: 3 days}",
        "{mesh: m, topology: star}",
        "{mesh: m, topology: hub}",
        "{mesh: m, sites: {'a b': {}}}",
        "{mesh: m, sites: {a: {brokr: x}}}",
        "{mesh: m, sites: {a: {broker: 'http://x'}}}",
        "{mesh: m, sites: {a: {availability: 2}}}",
        "{mesh: m, sites: {a: {log: {max_bytes: 20}}}}",
        "{mesh: m, branches: {names: [x], template: {tag: [y]}}}",
        "{mesh: m, exchanges: [{name: o, acks: both}]}",
        "{mesh: m, exchanges: [{name: o, identity: id}]}",
        "{mesh: m, exchanges: [{name: o, retry: {max_attempts: 0}}]}",
    ],
)
def test_what_the_reader_refuses_of_single_keys_the_schema_refuses_too(text: str) -> None:
    document = yaml.safe_load(text)
    assert problems(document) != []
    assert parse_mesh(json.dumps(document).encode()).mesh is None


def test_the_command_prints_schema_and_page() -> None:
    run = CliRunner().invoke
    assert json.loads(run(app, ["schema"]).stdout) == SCHEMA
    assert json.loads(run(app, ["schema", "--included"]).stdout) == site_list_schema()
    assert run(app, ["schema", "--page"]).stdout == PAGE.read_text()
