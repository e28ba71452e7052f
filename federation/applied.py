"""What the last `apply` left at a site: how to tell, without a management API, what is no longer
wanted. One small file a site in STATE/applied.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from pathlib import Path

from federation.provision import BindingDeclaration

_FORMAT = 1


class AppliedRecordBroken(Exception):
    """The record cannot be read. Delete it; `apply` then says what it cannot know to unbind."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}; delete it and apply again")


@dataclass(frozen=True, slots=True)
class Applied:
    """`queues` are the egress queues that are known to exist, bound or not."""

    bindings: frozenset[BindingDeclaration] = frozenset()
    queues: frozenset[str] = frozenset()


def read_applied(state: Path, mesh: str, site: str) -> Applied | None:
    """What the last apply left there, None if there was none. Raises AppliedRecordBroken."""
    file = _file(state, mesh, site)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise AppliedRecordBroken(file, f"format {content['format']!r} is not known")
        bindings = (BindingDeclaration(*map(str, binding)) for binding in content["bindings"])
        return Applied(frozenset(bindings), frozenset(map(str, content["queues"])))
    except (ValueError, KeyError, TypeError) as error:
        raise AppliedRecordBroken(file, f"damaged: {error!r}") from error


def write_applied(state: Path, mesh: str, site: str, revision: str, applied: Applied) -> None:
    """Write down what is there now."""
    content = {
        "format": _FORMAT,
        "revision": revision,
        "bindings": sorted(astuple(binding) for binding in applied.bindings),
        "queues": sorted(applied.queues),
    }
    file = _file(state, mesh, site)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    temporary.replace(file)


def _file(state: Path, mesh: str, site: str) -> Path:
    return state / "applied" / f"{mesh}.{site}.json"
