"""Words of messages: counts, sizes, suggestions for misspelled words, and foreign text made safe. Pure."""

from __future__ import annotations

import difflib
import json
import re
from bisect import bisect, bisect_right
from collections.abc import Callable, Iterable, Sequence

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
"""Each unit is 1024 times the one before."""
_TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All but tab and line feed; also characters that change the text direction, or break lines."""
REASON_BYTES = 500
"""Limit of a reason in a run's record, in bytes of JSON."""


def counted(count: int, noun: str) -> str:
    """For example `1 file` and `2 files`. `noun`: a singular whose plural adds an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def natural(text: str) -> list[str | int]:
    """A key that sorts numbers in names by value: `scan_2` before `scan_10`."""
    parts = re.split(r"([0-9]+)", text)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def some_of(names: Sequence[str]) -> str:
    """The first five names, and that there are others."""
    return f"{', '.join(names[:5])}{' and others' if len(names) > 5 else ''}"


def format_size(count: int) -> str:
    """A size such as `9 B` or `1.5 MiB`."""
    value = float(count)
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(count)


def format_span(seconds: float) -> str:
    """A duration in its two largest units, such as `1 h 5 min`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _TIMES:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"


def format_short_span(seconds: float) -> str:
    """A duration in one unit, such as `50 s`, `2 min` or `1.5 h`."""
    size, unit = next(((size, unit) for size, unit in _TIMES if seconds >= size), (0, ""))
    if size <= 1:
        return format_span(seconds)
    return (
        f"{seconds / size:.0f} {unit}"
        if seconds >= 10 * size or unit == "min"
        else f"{seconds / size:.1f} {unit}"
    )


def shortened(reason: str) -> str:
    """Cut a reason to REASON_BYTES of JSON, in which a letter outside ASCII takes at least six bytes."""
    most = REASON_BYTES - len(json.dumps("…"))
    head = reason[: most + 1]  # each character takes at least one byte, so no more of a long reason fits
    if len(json.dumps(head)) - 2 <= most:
        return reason
    fits = bisect_right(range(len(head)), most, key=lambda length: len(json.dumps(head[:length])) - 2) - 1
    return reason[:fits] + "…"


def escape_controls(text: str) -> str:
    """The text with its control characters escaped: a terminal or browser shows them, and runs none."""
    return CONTROLS.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


Suggestion = str | Callable[[], str | None] | None
"""A suggestion, or a function that finds it when it is shown: to compare words takes long."""

_MAX_COMPARED = 500
"""Of more words, only those are compared that are nearest in the alphabet."""
_LONGEST = 200


def suggested(suggestion: Suggestion) -> str | None:
    """The suggestion itself."""
    return suggestion() if callable(suggestion) else suggestion


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`; None: none is close enough."""
    if len(word) > _LONGEST:
        return None
    candidates = list(known)
    if len(candidates) > _MAX_COMPARED:
        candidates.sort()
        start = max(0, bisect(candidates, word) - _MAX_COMPARED // 2)
        candidates = candidates[start : start + _MAX_COMPARED]
    matches = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if not matches:  # NEW_YORK for new_york, maxDelay for max_delay
        plain = {_plain(candidate): candidate for candidate in candidates}
        matches = [plain[match] for match in difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)]
    return matches[0] if matches else None


def _plain(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
