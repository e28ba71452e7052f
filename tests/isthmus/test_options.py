"""Options that commands take in groups, and typer as single parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from isthmus.options import AsJson, grouped


@dataclass(frozen=True, slots=True)
class Options:
    """A group with a required and an optional field."""

    name: Annotated[str, typer.Argument()]
    often: Annotated[int, typer.Option("--often", "-n", min=1)] = 1


def call(*words: str) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @grouped
    def greet(context: typer.Context, options: Options, as_json: AsJson = False) -> None:
        """Greet somebody."""
        typer.echo(f"{options} {as_json} {sorted(context.params)}")

    result = CliRunner().invoke(app, [*words])
    return result.exit_code, result.output


def test_a_group_is_made_of_the_single_options() -> None:
    assert call("ada", "-n", "3", "--json") == (
        0,
        "Options(name='ada', often=3) True ['as_json', 'name', 'often']\n",
    )


def test_a_group_keeps_defaults_and_limits() -> None:
    assert "often=1" in call("ada")[1]
    assert call("ada", "-n", "0")[0] == 2
    assert call()[0] == 2


def test_help_is_that_of_the_command() -> None:
    code, text = call("--help")
    assert code == 0
    assert "Greet somebody." in text
    assert text.index("often") < text.index("json")
