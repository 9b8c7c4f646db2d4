"""Times, durations and sizes as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nimbus.domain.wording import format_size


def moment(text: str | None) -> datetime | None:
    """Parse a time of the API."""
    return datetime.fromisoformat(text) if text else None


def clock(text: str | None) -> str:
    """`2026-03-01 06:00:00Z`, or nothing."""
    at = moment(text)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if at else ""


def span(seconds: float | None) -> str:
    """`0.4s`, `12s`, `3m05s`, `2h10m`, `4d02h`; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes}m{rest:02d}s"
    days, hours = divmod(hours, 24)
    return f"{hours}h{minutes:02d}m" if days == 0 else f"{days}d{hours:02d}h"


def between(start: str | None, end: str | None, now: datetime) -> str:
    """The time from `start` to `end`, or until now."""
    began, ended = moment(start), moment(end) or now
    return span((ended - began).total_seconds()) if began else ""


def on_worker(attempt: Mapping[str, Any]) -> str:
    """` on w1`; nothing for an attempt of child runs, which no worker runs."""
    return f" on {attempt['worker']}" if attempt["worker"] else ""


size = format_size


def short(digest: str | None) -> str:
    """A digest, shortened but still unique."""
    return digest[:12] if digest else ""
