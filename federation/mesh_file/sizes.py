"""Sizes as people write them (`20GB`, `256MiB`) and as the code has them (bytes)."""

from __future__ import annotations

import re

UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(B|[KMGT]B|[KMGT]iB)")
_MEND = "write a number and one unit of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, such as 20GB"


class BadSize(ValueError):
    """Not a size. `wrong` says what it is instead, `mend` what to write."""

    def __init__(self, wrong: str, mend: str) -> None:
        self.wrong = wrong
        self.mend = mend
        super().__init__(f"{wrong}; {mend}")


def parse_size(text: object) -> int:
    """Bytes. Takes a number and one unit: KB is 1000 bytes, KiB 1024. Raises BadSize."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadSize("this is no size", "write a number and a unit, such as 20GB")
    if not isinstance(text, str):
        raise BadSize(f"the size {text} has no unit", f"write {text}MB or {text}GB")
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadSize(f"`{text}` is no size", _meant(text) or _MEND)
    return round(float(match[1]) * UNITS[match[2]])


def parse_rate(text: object) -> int:
    """Bytes a second, from a size and `/s`. Raises BadSize."""
    if isinstance(text, str) and text.strip().endswith("/s"):
        return parse_size(text.strip().removesuffix("/s"))
    shown = f"`{text}`" if isinstance(text, str | int | float) else "this"
    raise BadSize(f"{shown} is no rate", "write a size a second, such as 200KB/s")


def show_size(count: float) -> str:
    """For people, with three digits, in the biggest decimal unit that leaves one or more."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g}{unit}"
    return f"{count:.0f}B"


def _meant(text: str) -> str:
    """What somebody who wrote `20gb`, `20 GB` or `20G` should have written."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt])?(i)?b?\s*", text, re.IGNORECASE)
    if match is None or (match[2] is None and match[3] is not None):
        return ""
    meant = f"{match[1]}{(match[2] or '').upper()}{'i' if match[3] else ''}B"
    return f"did you mean `{meant}`?" if _FORM.fullmatch(meant) else ""
