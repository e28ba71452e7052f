"""Period of an audit, by time of publishing: UTC, half open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta


class BadPeriod(ValueError):
    """The given times cannot be parsed or are out of order."""


@dataclass(frozen=True, slots=True)
class Period:
    """Times from `from_ms` (inclusive) to `to_ms` (exclusive), in milliseconds since 1970."""

    from_ms: int
    to_ms: int

    @classmethod
    def of_day(cls, day: date) -> Period:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return cls(milliseconds(begin), milliseconds(begin + timedelta(days=1)))

    @classmethod
    def parse(cls, day: str | None, begin: str | None, end: str | None, now: datetime) -> Period:
        """Parse `--date`, or `--from` and `--to`; yesterday without any. Raises BadPeriod."""
        if day is not None:
            if begin is not None or end is not None:
                raise BadPeriod("either --date, or --from and --to")
            try:
                return cls.of_day(date.fromisoformat(day))
            except ValueError as error:
                raise BadPeriod(f"--date {day!r}: {error}") from None
        if begin is None and end is None:
            return cls.of_day((now.astimezone(UTC) - timedelta(days=1)).date())
        if begin is None or end is None:
            raise BadPeriod("--from and --to go together")
        period = cls(_moment(begin), _moment(end))
        if period.to_ms <= period.from_ms:
            raise BadPeriod("--to is not after --from")
        return period

    def dates(self, before_s: float) -> str:
        """Return the first date whose ledger folder can matter, `before_s` seconds before the
        period.
        """
        return datetime.fromtimestamp(self.from_ms / 1000 - before_s, UTC).date().isoformat()

    def __str__(self) -> str:
        return f"{_text(self.from_ms)} to {_text(self.to_ms)}"


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadPeriod(f"{text!r}: {error}") from None
    return milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970, the time unit of ledgers and receipts."""
    return round(moment.timestamp() * 1000)


def json_time(ms: int) -> str:
    """Return the form of times in reports: `2026-11-21T00:00:00.000Z`."""
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _text(ms: int) -> str:
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000").removesuffix(":00") + "Z"
