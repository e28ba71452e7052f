"""Texts of mesh files with a mark where the mistake is, and what is told of it."""

from __future__ import annotations

from federation.mesh_file.problem import Severity
from tests.federation.meshes import TRIANGLE, errors_of, problems_of

BROKER = "broker: 'amqps://r@h.example/v', password: 'env:P'"


def at(text: str, mark: str = "^") -> tuple[str, tuple[int, int]]:
    """The text without the mark, and where the mark stood."""
    before, after = text.split(mark)
    line = before.count("\n") + 1
    return before + after, (line, len(before) - before.rfind("\n"))


def the_error(marked: str) -> str:
    """The one error of that text, which must stand at the mark; without its position."""
    text, expected = at(marked)
    problems = errors_of(text)
    assert len(problems) == 1, "\n".join(map(str, problems))
    assert (problems[0].line, problems[0].column) == expected, str(problems[0])
    return f"{problems[0].wrong}; {problems[0].mend}"


def the_warning(marked: str) -> str:
    """The same for a text that can be used, but has something to look at."""
    text, expected = at(marked)
    problems = problems_of(text)
    assert [problem.severity for problem in problems] == [Severity.WARNING], problems
    assert (problems[0].line, problems[0].column) == expected, str(problems[0])
    return f"{problems[0].wrong}; {problems[0].mend}"


def with_exchange(exchange: str) -> str:
    return TRIANGLE.replace('{name: orders, keys: ["order.#"]}', exchange)


def with_tokyo(keys: str) -> str:
    """The others have what they would show at its broker."""
    others = TRIANGLE
    for other in ("paris", "sydney"):
        others = others.replace(f"{other}: {{}}", f"{other}: {{link_password: 'env:{other}'}}")
    return others.replace("tokyo: {}", f"tokyo: {{{keys}}}")


def with_links(links: str, topology: str = "topology: custom") -> str:
    return (
        f"mesh: acme\n{topology}\nlinks:\n  - {links}\n"
        "exchanges: []\nsites: {paris: {}, tokyo: {}, sydney: {}}\n"
    )
