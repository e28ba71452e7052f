"""Questions that the page answers beside the live figures: messages put aside, one message's way,
audits, and what an outage would do.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isthmus.lost_messages import AFTER
from isthmus.node_client import NodeAway, NodeClient, NodeSaysNo, look_into
from isthmus.options import EXIT_USAGE
from isthmus.outage.tables import tables
from isthmus.page.command_run import CommandResult, CommandUnfinished, run_command
from relay.delivery.put_aside import Aside

LOOK_WITHIN_S = 60.0
TRACE_WITHIN_S = 120.0
OUTAGE_WITHIN_S = 600.0
SHOWN_MESSAGES = 100
SHOWN_BYTES = 4096
"""Bytes of a body that the page shows."""
SHOWN_AUDITS = 30
SHOWN_FINDINGS = 50
MOST_WORD = 4096
"""Characters of a word of a question."""
REPORT = "report.json"
_AUDIT = re.compile(r"from=[0-9TZ-]+")


class BadInquiry(ValueError):
    """Question that cannot be asked; the text has the remedy."""


class NoAnswer(Exception):
    """The command behind a question has failed; the text is the command's."""


async def messages_put_aside(state: Path, site: str, aside: Aside) -> dict[str, Any]:
    """Return {"total", "messages", "problem"}: the first SHOWN_MESSAGES without their bodies, and
    why there may be more at other nodes, empty if not. Raises NoAnswer.
    """
    looks: dict[str, Any] = {}
    problem = ""
    try:
        await look_into(looks, NodeClient.of(state, site), aside, most=SHOWN_MESSAGES)
    except (NodeAway, NodeSaysNo) as error:
        if site not in looks:
            raise NoAnswer(str(error)) from None
        problem = str(error)  # of slots that others have
    return {**looks[site], "problem": problem}


async def message_put_aside(
    file: Path, state: Path, site: str, aside: Aside, id_: str
) -> dict[str, Any]:
    """Return a message with the begin of its body as text: `text`, `is_text` (False: bytes that are
    no UTF-8 are escaped) and `is_cut`. Raises NoAnswer.
    """
    words = [str(aside), "show", str(file), f"--site={site}", "--json", f"--state={state}"]
    message = await _json_of([*words, "--", id_], LOOK_WITHIN_S, {0})
    message.pop("properties_base64", None)
    return {**message, **body_shown(base64.b64decode(message.pop("body_base64")))}


def body_shown(body: bytes) -> dict[str, Any]:
    """Return the fields `text`, `is_text` and `is_cut` of a body."""
    shown, is_cut = body[:SHOWN_BYTES], len(body) > SHOWN_BYTES
    try:
        # A character that the cut has halved is none of the body's faults.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=not is_cut)
        is_text = True
    except UnicodeDecodeError:
        text, is_text = shown.decode(errors="backslashreplace"), False
    return {"text": text, "is_text": is_text, "is_cut": is_cut}


async def message_trace(file: Path, state: Path, id_: str, day: str) -> dict[str, Any]:
    """Return what `isthmus trace --json` prints. Raises BadInquiry, NoAnswer."""
    if not id_.strip() or len(id_) > MOST_WORD or "\0" in id_:
        raise BadInquiry(f"say id: a message_id or an identity, up to {MOST_WORD:,} characters")
    words = ["trace", str(file), "--json", f"--state={state}"]
    if day:
        words.append(f"--date={_word(day)}")
    return await _json_of([*words, "--", id_], TRACE_WITHIN_S, {0, 1})


async def outage_tables(file: Path, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of `isthmus simulate FILE --fail`, as `tables_json` has them. `fields`:
    `fail` (names), `for`, `rate`, and perhaps `size` and `line_rate`. Raises BadInquiry, NoAnswer.
    """
    fails = fields.get("fail")
    if not isinstance(fails, list) or not fails or len(fails) > 100:
        raise BadInquiry("say fail: the names of 1 to 100 links or sites")
    words = ["simulate", str(file), "--json", *(f"--fail={_word(one)}" for one in fails)]
    words += [f"--{name}={_word(fields.get(name))}" for name in ("for", "rate")]
    for name in ("size", "line_rate"):
        if fields.get(name):
            words.append(f"--{name.replace('_', '-')}={_word(fields[name])}")
    return list(tables_json(tables(await _json_of(words, OUTAGE_WITHIN_S, {0, 1}))))


def tables_json(part: RenderableType) -> Iterator[dict[str, Any]]:
    """Yield the tables and lines of a report: {"title", "headings": [{"text", "is_figure"}],
    "rows"} or {"text"}.
    """
    if isinstance(part, Group):
        for one in part.renderables:
            yield from tables_json(one)
    elif isinstance(part, Table):
        columns = part.columns
        cells = [map(_plain, one.cells) for one in columns]
        yield {
            "title": _plain(part.title),
            "headings": [
                {"text": _plain(one.header), "is_figure": one.justify == "right"} for one in columns
            ],
            "rows": [list(row) for row in zip(*cells, strict=True)],
        }
    elif part:
        yield {"text": _plain(part)}


def audit_folders(state: Path) -> dict[str, Path]:
    """Return the folders of the state folder's latest audits by name, the latest first."""
    names = [one.name for one in (state / "audit").glob("from=*") if _AUDIT.fullmatch(one.name)]
    latest = sorted(names, reverse=True)[:SHOWN_AUDITS]
    return {name.removeprefix("from="): state / "audit" / name for name in latest}


def audits(state: Path, mesh: str) -> list[dict[str, Any]]:
    """Return the latest audits of a state folder: {"name", "verdict", "sentence", "findings"
    (counts by kind), "shown", "why_not_proven", "after_repair" ({"verdict", "sentence"} of the
    audit that followed a repair, or None), "can_repair"}; of one that cannot be read {"name",
    "problem"}.
    """
    return [_audit(name, folder, mesh) for name, folder in audit_folders(state).items()]


def _audit(name: str, folder: Path, mesh: str) -> dict[str, Any]:
    try:
        report = _report(folder)
        if report["mesh"] != mesh:
            return {"name": name, "problem": f"it is an audit of mesh {report['mesh']}"}
        findings = _findings(report)
        after = _after_repair(folder)
        return {
            "name": name,
            "verdict": str(report["verdict"]),
            "sentence": str(report["sentence"]),
            "findings": findings,
            "shown": [_finding(one) for one in report["shown"][:SHOWN_FINDINGS]],
            "why_not_proven": [str(why) for why in report["why_not_proven"][:SHOWN_FINDINGS]],
            "after_repair": after and {key: str(after[key]) for key in ("verdict", "sentence")},
            "can_repair": (findings if after is None else _findings(after)).get("lost", 0) > 0,
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"name": name, "problem": f"its report.json cannot be read ({error!r})"}


def _after_repair(folder: Path) -> dict[str, Any] | None:
    """Return the report of the audit that followed a repair; None if there is none that can be
    read, or if the first audit was made again since.
    """
    try:
        made_at = [(one / REPORT).stat().st_mtime_ns for one in (folder, folder / AFTER)]
        report = _report(folder / AFTER)
        _findings(report)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return report if made_at[0] <= made_at[1] else None


def _report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    return report


def _findings(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of a report by kind."""
    return {str(kind): int(count) for kind, count in report["findings"].items()}


def _finding(one: Mapping[str, Any]) -> dict[str, str]:
    fields = ("kind", "identity", "exchange", "origin", "destination", "published", "why")
    return {name: str(one.get(name) or "") for name in fields}


def _word(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > MOST_WORD or "\0" in value:
        raise BadInquiry("say fail, for and rate in words, such as paris-tokyo, 2h and 500")
    return value


def _plain(text: object) -> str:
    return Text.from_markup(text).plain if isinstance(text, str) else str(text or "")


async def _json_of(words: list[str], within_s: float, good: set[int]) -> dict[str, Any]:
    """Run a command; return the JSON that it prints with one of the `good` exit statuses.
    Raises BadInquiry if the call is wrong, NoAnswer.
    """
    try:
        result: CommandResult = await run_command(words, within_s)
    except CommandUnfinished as error:
        raise NoAnswer(f"isthmus {words[0]}: {error}") from None
    try:
        content: dict[str, Any] = json.loads(result.output)
    except ValueError:
        content = {}
    if result.status not in good or not content:
        why = result.errors.strip()[-MOST_WORD:] or f"ended with exit status {result.status}"
        is_ours = result.status == EXIT_USAGE
        raise (BadInquiry if is_ours else NoAnswer)(f"isthmus {words[0]}: {why}")
    return content
