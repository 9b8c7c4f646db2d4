"""Formats figures and times for pages. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from markupsafe import Markup, escape

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_KIB = 1024.0


def span(seconds: float) -> str:
    """A duration in its two largest units, such as `1 h 5 min`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"


def size(count: float) -> str:
    """Bytes in the largest unit that leaves a figure above 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _KIB:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} TiB"


def as_json(value: object) -> str:
    """A value in the form of definitions and commands."""
    return json.dumps(value, ensure_ascii=False, default=str)


def with_code(text: str) -> Markup:
    """A message in which text between backticks, such as commands and keys, is shown as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def moment(at: datetime | None) -> Markup:
    """An exact time, which scripts make relative. The page itself must not change with time."""
    if at is None:
        return Markup("&ndash;")
    exact = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return Markup('<time datetime="{}">{}</time>').format(at.astimezone(UTC).isoformat(), exact)


def to_the_minute(at: datetime) -> str:
    """A time that is a name, such as a date of a backfill, and is never made relative."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def since(start: datetime | None, end: datetime | None) -> Markup:
    """A duration; without an end, the start, from which scripts count."""
    if start is None:
        return Markup("&ndash;")
    if end is not None:
        return escape(span((end - start).total_seconds()))
    return Markup('<time class="for" datetime="{}">since {}</time>').format(
        start.astimezone(UTC).isoformat(), f"{start.astimezone(UTC):%H:%M:%SZ}"
    )
