"""Sites out of templates, tables and included files, and the places of mistakes in these."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from federation.mesh import Begins
from federation.mesh_file import Reading, parse_mesh
from federation.mesh_file.problem import Severity
from federation.mesh_file.templates import parse_table
from federation.mesh_file.tree import MAX_BYTES, TreeProblem
from tests.federation.marked import at

HEAD = """\
mesh: acme
topology: {hub: head}
exchanges: [{name: store, from: [head], to: [shops]}]
sites: {head: {}}
"""
TABLE = (
    HEAD
    + """\
branches:
  file: shops.csv
  template: {tags: [shops, "{region}"], broker: "amqps://r@{host}/v", password: "file:s/{site}"}
"""
)
SHOPS = "site,region,host\noslo,north,h1\nrome,south,h2\nbari,south,h3\n"


def read(folder: Path, text: str, files: Mapping[str, str | bytes] = {}) -> Reading:
    """What that text and those files beside it come to."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return parse_mesh(textwrap.dedent(text).encode(), "mesh.yaml", folder)


def the_error(folder: Path, text: str, files: Mapping[str, str] = {}) -> str:
    """The one error, which must stand at the ^ of the text or of one of the files."""
    marked = {"mesh.yaml": text, **files}
    [where] = [name for name, content in marked.items() if "^" in content]
    marked[where], expected = at(marked[where])
    main = marked.pop("mesh.yaml")
    problems = read(folder, main, marked).problems
    assert len(problems) == 1, "\n".join(map(str, problems))
    [problem] = problems
    assert (problem.file, problem.line, problem.column) == (where, *expected), str(problem)
    return f"{problem.wrong}; {problem.mend}"


# What they come to


def test_a_template_is_filled_in_for_each_name(tmp_path: Path) -> None:
    text = HEAD + 'branches: {names: [oslo, rome], template: {tags: [shops, "in-{site}"]}}\n'
    mesh = read(tmp_path, text).mesh
    assert mesh is not None
    assert list(mesh.sites) == ["head", "oslo", "rome"]
    assert mesh.sites["rome"].tags == ("shops", "in-rome")
    assert mesh.exchanges["store"].destinations == ("oslo", "rome")


def test_a_table_gives_names_and_whatever_its_columns_say(tmp_path: Path) -> None:
    mesh = read(tmp_path, TABLE, {"shops.csv": SHOPS}).mesh
    assert mesh is not None
    rome = mesh.sites["rome"]
    assert rome.tags == ("shops", "south")
    assert rome.broker is not None
    assert rome.broker.amqp == "amqps://r@h2:5671/v"
    assert rome.broker.password == f"file:{tmp_path}/s/rome"


def test_several_groups_are_a_list_and_a_template_may_be_left_out(tmp_path: Path) -> None:
    text = HEAD.replace("to: [shops]", "to: [oslo]") + (
        "branches:\n  - {names: [oslo, rome]}\n  - {names: [bari], template: }\n"
    )
    mesh = read(tmp_path, text).mesh
    assert mesh is not None
    assert list(mesh.sites) == ["head", "oslo", "rome", "bari"]


def test_a_mesh_may_have_branches_only(tmp_path: Path) -> None:
    mesh = read(tmp_path, "mesh: m\ntopology: ring\nbranches: {names: [a, b, c]}\n").mesh
    assert mesh is not None
    assert [link.name for link in mesh.links] == ["a-b", "b-c", "c-a"]


def test_a_branch_written_out_has_the_same_revision(tmp_path: Path) -> None:
    template = HEAD + 'branches: {names: [oslo], template: {tags: [shops], cluster_id: "c-{site}"}}'
    written = HEAD.replace("{head: {}}", "{head: {}, oslo: {tags: [shops], cluster_id: c-oslo}}")
    one, other = read(tmp_path, template).mesh, read(tmp_path, written).mesh
    assert one is not None
    assert other is not None
    assert one.revision == other.revision


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{site}", "oslo"),
        ("{{site}}", "{site}"),
        ("{{{site}}}", "{oslo}"),
        ("a{site}b{region}c", "aoslobnorthc"),
        ("{", "{"),
        ("{}", "{}"),
        ("{no such}", "{no such}"),
    ],
)
def test_braces_stand_for_columns_and_doubled_for_themselves(
    tmp_path: Path, text: str, filled: str
) -> None:
    mesh_text = HEAD + (
        f"branches: {{file: shops.csv, template: {{tags: [shops], wants: {{store: ['{text}']}}}}}}"
    )
    mesh = read(tmp_path, mesh_text, {"shops.csv": SHOPS}).mesh
    assert mesh is not None
    assert mesh.sites["oslo"].wants == {"store": (filled,)}


def test_a_column_of_availabilities_is_numbers(tmp_path: Path) -> None:
    text = HEAD + 'branches: {file: t.csv, template: {tags: [shops], availability: "{up}"}}\n'
    mesh = read(tmp_path, text, {"t.csv": "site,up\noslo,0.97\n"}).mesh
    assert mesh is not None
    assert mesh.sites["oslo"].availability == 0.97


def test_where_branches_begin_stands_in_the_template_or_in_a_column(tmp_path: Path) -> None:
    text = HEAD + 'branches: {file: t.csv, template: {tags: [shops], from: "{begins}"}}\n'
    mesh = read(tmp_path, text, {"t.csv": "site,begins\noslo,start\nrome,now\n"}).mesh
    assert mesh is not None
    assert [mesh.sites[name].begins for name in ("oslo", "rome")] == [Begins.START, Begins.NOW]


@pytest.mark.parametrize(
    "table",
    [
        SHOPS.replace("\n", "\r\n"),
        SHOPS.replace("\n", "\r"),
        "\ufeff" + SHOPS,
        "# of this year\n" + SHOPS.replace("\noslo", "\n\n#closed,x,y\noslo"),
        SHOPS.replace("rome,south,h2", '"rome", "south" ,h2').rstrip(),
    ],
)
def test_tables_are_taken_as_spreadsheets_write_them(table: str) -> None:
    problems: list[TreeProblem] = []
    branches = parse_table(table.encode(), "t.csv", problems.append)
    assert problems == []
    assert [branch.site.text for branch in branches] == ["oslo", "rome", "bari"]
    assert [branch.values["region"].text for branch in branches] == ["north", "south", "south"]


def test_a_quoted_cell_may_have_commas_and_quotes_in_it() -> None:
    [branch] = parse_table(b'site,note\noslo,"a, ""b"" #c"\n', "t.csv", [].append)
    assert branch.values["note"].text == 'a, "b" #c'
    assert branch.values["note"].position[:2] == (2, 6)


def test_included_files_name_more_sites_relative_to_themselves(tmp_path: Path) -> None:
    text = HEAD + "include: regions/north.yaml\n"
    files = {
        "regions/north.yaml": "sites:\n  oslo: {tags: [shops]}\ninclude: [deep/more.yaml]\n",
        "regions/deep/more.yaml": """
branches: {file: t.csv, template: {tags: [shops], broker: "amqps://r@{site}", password: "file:p",
           tls: {ca: "ca.pem"}}}
""",
        "regions/deep/t.csv": "site\nrome\n",
        "regions/deep/ca.pem": "",
    }
    reading = read(tmp_path, text, files)
    assert reading.problems == ()
    assert reading.mesh is not None
    assert list(reading.mesh.sites) == ["head", "oslo", "rome"]
    broker = reading.mesh.sites["rome"].broker
    assert broker is not None
    assert broker.password == f"file:{tmp_path}/regions/deep/p"
    assert broker.tls.ca == f"{tmp_path}/regions/deep/ca.pem"


def test_spreading_sites_over_files_leaves_the_revision_as_it_is(tmp_path: Path) -> None:
    broker = "broker: 'amqp://r@h', password: 'file:x/p'"
    whole = HEAD.replace("{head: {}}", f"{{head: {{}}, oslo: {{tags: [shops], {broker}}}}}")
    spread = HEAD + "include: [x/more.yaml]\n"
    more = f"sites: {{oslo: {{tags: [shops], {broker.replace('x/', '')}}}}}\n"
    one, other = read(tmp_path, whole).mesh, read(tmp_path, spread, {"x/more.yaml": more}).mesh
    assert one is not None
    assert other is not None
    assert one.revision == other.revision


# What is wrong with templates

NAMES = HEAD + "branches: {names: [oslo, rome], template: {tags: [shops]}}\n"


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (NAMES.replace("tags:", "^tag:"), "`tag` (and at 1 other branch of this template); did yo"),
        (
            NAMES.replace("[shops]}}", "[shops], broker: ^'http://{site}/v'}}"),
            "the address does not begin with amqp:// or amqps:// (and at 1 other branch of this te",
        ),
        (
            NAMES.replace("[shops]}}", "[shops, ^'{sit}']}}"),
            "`{sit}` stands for nothing here; did you mean `{site}`?",
        ),
        (NAMES.replace("rome]", "^oslo]"), "`oslo` is here twice, first in line 5; keep one"),
        (NAMES.replace("rome]", "^head]"), "`head` is here twice, first in line 4; keep one"),
        (NAMES.replace("rome]", "^'new york']"), "`new york` cannot name a site; write 1 to 63"),
        (NAMES.replace("rome]", "^7]"), "this must be text, not the number 7"),
        (NAMES.replace("[oslo, rome]", "^oslo"), "`names` must be a list, not text"),
        (NAMES.replace("[oslo, rome]", "^[]"), "`names` must have 1 or more; name one, or take"),
        (NAMES.replace("names:", "^name:"), "unknown key `name`; did you mean `names`?"),
        (NAMES.replace("names: [oslo, rome]", "^").replace("{^,", "^{"), "this names no branches"),
        (NAMES.replace("names:", "^file: x.csv, names:"), "`names` and `file` both name the bran"),
        (NAMES.replace("{tags: [shops]}", "^[shops]"), "`template` must be a mapping, not a list"),
        (
            NAMES.replace("to: [shops]", "to: [oslo]").replace(
                "template: {tags: [shops]}", "^tags: []"
            ),
            "unknown key `tags`; it is a key of a site: put it into `template`",
        ),
        (HEAD.replace("to: [shops]", "to: [head, oslo]") + "branches: [^oslo]\n", "write {names:"),
        (
            NAMES.replace("[shops]}}", "[shops], cluster_id: x}}").replace("rome]", "^rome]"),
            "the cluster ID `x` is that of site `oslo` already (by line 5 of mesh.yaml)",
        ),
        (NAMES.replace("{head: {}}", "{head: {tags: [^'{town}']}}"), "`{town}` stands for nothing"),
    ],
)
def test_a_mistake_of_a_template_is_told_once_at_the_template(
    tmp_path: Path, marked: str, said: str
) -> None:
    assert said in the_error(tmp_path, marked)


# What is wrong with tables


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (SHOPS.replace("rome,south,h2", "rome,south,^"), "the address names no host (by line 7 of"),
        (SHOPS.replace("rome,south", "rome,^new south"), "`new south` cannot be a tag (by line 7"),
        (SHOPS.replace("h3", "^h1"), "site `oslo` has this broker and virtual host already (by li"),
        (SHOPS.replace("bari", "^oslo"), "`oslo` is here twice, first in line 2; keep one of them"),
        (SHOPS.replace("bari", "^head"), "`head` is here twice, first in line 4 of mesh.yaml; ke"),
        (SHOPS.replace("bari", "^bari 1"), "`bari 1` cannot name a site; write 1 to 63 letters"),
        (SHOPS.replace("bari", "^"), "this line names no site; write its name, or take it out"),
        (SHOPS.replace("bari,south", "^bari"), "this line has 2 cells, the first line names 3; w"),
        (SHOPS.replace("h2", "h2,^x"), "this line has 4 cells, the first line names 3; put a cell"),
        (SHOPS.replace("h2", '^"h2'), "a quote that is not closed in its line, or text behind it"),
        (SHOPS.replace("h2", '^"h2"x'), "a quote that is not closed in its line, or text behind"),
        ("^" + SHOPS.replace(",", ";"), "there is no column `site`; separate columns with commas"),
        ("^" + SHOPS.replace(",", "\t"), "there is no column `site`; separate columns with comma"),
        ("^" + SHOPS.replace("site", "Site"), "there is no column `site`; rename the column `Site"),
        ("^name,region,host\na,b,c\n", "there is no column `site`; name the column of the sites'"),
        (
            SHOPS.replace("host", "host,^host")
            .replace("h1", "h1,h1")
            .replace("h2", "h2,h2")
            .replace("h3", "h3,h3"),
            "the column `host` is here twice; rename one",
        ),
        (
            SHOPS.replace("host", "host,^a b")
            .replace("h1", "h1,h1")
            .replace("h2", "h2,h2")
            .replace("h3", "h3,h3"),
            "`a b` cannot name a column; write letters, digits, _ and -",
        ),
        ("^", "the table is empty; begin with a line of column names, one of which is `site`"),
        ("^site,region,host\n", "the table names no site; add a line for each"),
    ],
)
def test_a_mistake_of_a_table_is_told_at_its_cell(tmp_path: Path, marked: str, said: str) -> None:
    assert said in the_error(tmp_path, TABLE, {"shops.csv": marked})


def test_a_column_that_is_not_there_is_told_at_the_template(tmp_path: Path) -> None:
    text = TABLE.replace('"amqps://r@{host}/v"', '^"amqps://r@{hots}/v{site}"')
    assert "did you mean `{host}`?" in the_error(tmp_path, text, {"shops.csv": SHOPS})


@pytest.mark.parametrize(
    ("data", "position", "said"),
    [
        (b"site\nos\xe9lo\n", (2, 3), "byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"x" * (MAX_BYTES + 9), (1, 1), "bytes, more than 1048576"),
        (b"x" * 10_000_000, (1, 1), "bytes, more than 1048576"),
    ],
)
def test_a_table_that_is_no_text_of_ours_is_told(
    tmp_path: Path, data: bytes, position: tuple[int, int], said: str
) -> None:
    [problem] = read(tmp_path, TABLE, {"shops.csv": data}).problems
    assert (problem.file, problem.line, problem.column) == ("shops.csv", *position)
    assert said in str(problem)


def test_a_table_that_is_not_there_is_told_where_it_is_named(tmp_path: Path) -> None:
    said = the_error(tmp_path, TABLE.replace("shops.csv", "^nowhere.csv"))
    assert "nowhere.csv cannot be read: no such file or directory; the path is relative to" in said


def test_a_template_that_comes_to_too_much_is_refused(tmp_path: Path) -> None:
    tags = ", ".join(f"t{n}" for n in range(300))
    table = "site\n" + "".join(f"s{n}\n" for n in range(2000))
    text = HEAD + f"branches: ^{{file: t.csv, template: {{tags: [{tags}]}}}}\n"
    assert "the templates come to more than" in the_error(tmp_path, text, {"t.csv": table})


# What is wrong with included files

INCLUDE = HEAD + "include: [more.yaml]\n"


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("sites: {oslo: {^tag: [shops]}}\n", "unknown key `tag`; did you mean `tags`?"),
        (
            "sites: {oslo: {tags: [shops]}, ^head: {}}\n",
            "`head` is here twice, first in line 4 of m",
        ),
        ("sites: {oslo: {tags: [shops]}, ^oslo: {}}\n", "`oslo` is here twice, first in line 1; k"),
        ("sites: {oslo: {tags: [shops], wants: {^x: ['#']}}}\n", "there is no exchange `x`"),
        (
            "sites: {oslo: {tags: [shops]}}\n^exchanges: []\n",
            "`exchanges` does not belong here: an",
        ),
        ("sites: {oslo: {tags: [shops]}}\n^branch: {}\n", "did you mean `branches`?"),
        ("^- oslo\n", "an included file is a mapping; begin with sites: or branches:"),
        ("sites: ^[oslo]\n", "`sites` must be a mapping; write it as {KEY: VALUE}"),
        ("sites: {oslo: {tags: [shops]}}\nbranches: {^names: [x], names: [x]}\n", ""),
        ("sites: {oslo: {tags: [shops]}}\nbranches: {names: ^x}\n", "`names` must be a list, not"),
        ("^", "the file is empty"),
        ("sites: {oslo: {\n^", "this is not YAML"),
        ("include: [^more.yaml]\nsites: {oslo: {tags: [shops]}}\n", "`more.yaml` leads back to it"),
        ("include: [^mesh.yaml]\nsites: {oslo: {tags: [shops]}}\n", "`mesh.yaml` leads back to it"),
        (
            "include: [^x.yaml]\nsites: {oslo: {tags: [shops]}}\n",
            "x.yaml cannot be read: no such f",
        ),
        ("include: [^5]\nsites: {oslo: {tags: [shops]}}\n", "this must be text, not the number 5"),
    ],
)
def test_a_mistake_of_an_included_file_is_told_in_that_file(
    tmp_path: Path, marked: str, said: str
) -> None:
    if marked.count("names") == 2:
        marked = marked.replace("^names: [x], names", "names: [x], ^names")
        said = "`names` is here twice, first in line 2; keep one of them"
    assert said in the_error(tmp_path, INCLUDE, {"more.yaml": marked})


def test_a_file_that_is_included_twice_is_told_at_the_second_place(tmp_path: Path) -> None:
    text = INCLUDE.replace("[more.yaml]", "[more.yaml, ^./more.yaml]")
    more = "sites: {oslo: {tags: [shops]}}\n"
    assert "`./more.yaml` is included twice" in the_error(tmp_path, text, {"more.yaml": more})


def test_a_circle_over_several_files_ends(tmp_path: Path) -> None:
    files = {"more.yaml": "include: a/b.yaml\n", "a/b.yaml": "include: ^../more.yaml\n"}
    assert "leads back to itself" in the_error(tmp_path, INCLUDE, files)


def test_mistakes_of_all_files_are_told_at_once_the_mesh_files_first(tmp_path: Path) -> None:
    text = HEAD.replace("hub: head", "hub: hed") + "branches: {file: t.csv}\ninclude: more.yaml\n"
    files = {"t.csv": "site\na b\nc\n", "more.yaml": "sites: {d: {availability: 2}}\n"}
    problems = read(tmp_path, text, files).problems
    assert all(problem.severity is Severity.ERROR for problem in problems)
    assert [(p.file, p.line, p.column) for p in problems] == [
        ("mesh.yaml", 2, 17),
        ("mesh.yaml", 3, 46),
        ("more.yaml", 1, 27),
        ("t.csv", 2, 1),
    ]
