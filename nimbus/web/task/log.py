"""Splits logs into pieces at line ends, shows their colours as CSS classes, and searches in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup, escape

_SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m")
_OTHERS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_CODES = {1: "ab", 2: "af", 3: "ai", 4: "au", 7: "ar"}
_UNDO = {22: {"ab", "af"}, 23: {"ai"}, 24: {"au"}, 27: {"ar"}}
_COLOURS = {30 + n: f"c{n}" for n in range(8)} | {90 + n: f"c{n}" for n in range(8)}


def marked_up(text: str) -> Markup:
    """The text, escaped, with `<span class>` where a terminal would change its colours.

    Other control sequences are dropped.
    """
    parts: list[Markup] = []
    classes: set[str] = set()
    # Odd parts are the contents of sequences.
    for number, part in enumerate(_SEQUENCE.split(text.replace("\r\n", "\n"))):
        if number % 2:
            classes = _after(classes, part)
            continue
        plain = escape(_OTHERS.sub("", part.replace("\r", "\n")))
        if plain and classes:
            plain = Markup('<span class="{}">{}</span>').format(" ".join(sorted(classes)), plain)
        parts.append(plain)
    return Markup("").join(parts)


def _after(classes: set[str], codes: str) -> set[str]:
    """The classes after a sequence. Parameters of 256 colours and true colours are skipped."""
    numbers = [int(code or 0) for code in re.split("[;:]", codes[:64]) if len(code) < 4]
    found = set(classes)
    while numbers:
        code = numbers.pop(0)
        if code in (38, 48):
            del numbers[: {5: 2, 2: 4}.get(numbers[0] if numbers else 0, 0)]
        elif code == 0:
            found = set()
        elif code in _CODES:
            found.add(_CODES[code])
        elif code in _UNDO:
            found -= _UNDO[code]
        elif code in _COLOURS or code == 39:
            found = {one for one in found if one[0] != "c"} | ({_COLOURS[code]} if code != 39 else set())
    return found


PIECE_BYTES = 64 * 1024
"""Size of one element of the page: a browser skips elements that are completely off the screen."""
WINDOW_BYTES = 256 * 1024
"""Limit of one answer."""
_LONGEST_SEARCH = 32 << 20
_SEARCH_STEP = 4 << 20
_MOST_HITS = 100
_CONTEXT = 120

Read = Callable[[int, int], bytes]
"""Reads bytes of a log, by offset and limit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log."""

    start: int
    end: int
    text: Markup


def pieces(read: Read, start: int, end: int, *, whole: bool) -> list[Piece]:
    """The log from `start` to `end`, in pieces. A piece ends at a line end, unless the line is too long.

    Args:
        read: Reads the log.
        start: First byte.
        end: First byte that is not shown; at most `WINDOW_BYTES` after `start`.
        whole: True: an incomplete last line is shown, too, because the log has ended.
    """
    data = read(start, min(end - start, WINDOW_BYTES)) if end > start else b""
    whole = whole and start + len(data) >= end
    found = []
    while data:
        cut = len(data) if whole and len(data) <= PIECE_BYTES else data.rfind(b"\n", 0, PIECE_BYTES) + 1
        if not cut and len(data) < PIECE_BYTES:
            break
        cut = cut or PIECE_BYTES
        part, data = data[:cut], data[cut:]
        found.append(Piece(start, start + cut, marked_up(part.decode("utf-8", "replace"))))
        start += cut
    return found


def line_start(read: Read, offset: int) -> int:
    """The start of a line at or shortly before `offset`."""
    before = max(0, offset - 4096)
    cut = read(before, offset - before).rfind(b"\n") + 1
    return before + cut if cut or before == 0 else offset


@dataclass(frozen=True, slots=True)
class Hit:
    """A line, or a part of it, with a match."""

    offset: int
    """Offset in the log of the line or part."""
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search."""

    hits: tuple[Hit, ...]
    searched_to: int
    """Offset in the log up to which it was searched: the end, or where to continue."""


def search(read: Read, wanted: str, start: int, end: int) -> Search:
    """Search a text in a log, ignoring the case of ASCII letters. Bytes and hits are limited."""
    needle = wanted.encode("utf-8", "replace").lower()
    last = min(end, start + _LONGEST_SEARCH)
    hits: list[Hit] = []
    position = start
    while position < last and len(hits) < _MOST_HITS:
        # Steps overlap, so that no match is missed at a border.
        data = read(position, _SEARCH_STEP + len(needle) - 1)
        if not data:
            break
        places = (at for at in _places(data, needle) if at < _SEARCH_STEP)
        wanted_yet = _MOST_HITS + 1 - len(hits)
        hits += [_hit(data, at, len(needle), position) for at in islice(places, wanted_yet)]
        position += min(_SEARCH_STEP, len(data))
    more = hits[_MOST_HITS:]
    return Search(tuple(hits[:_MOST_HITS]), more[0].offset if more else min(position, end))


def _places(data: bytes, needle: bytes) -> Iterator[int]:
    """The first match in each line."""
    lowered, at = data.lower(), -1
    while needle and (at := lowered.find(needle, at + 1)) >= 0:
        yield at
        ends = lowered.find(b"\n", at)
        at = ends if ends >= 0 else len(lowered)


def _hit(data: bytes, at: int, size: int, position: int) -> Hit:
    begins = max(data.rfind(b"\n", 0, at) + 1, at - _CONTEXT)
    ends = data.find(b"\n", at + size)
    ends = min(ends if ends >= 0 else len(data), at + size + _CONTEXT)
    before, found, after = (
        part.decode("utf-8", "replace")
        for part in (data[begins:at], data[at : at + size], data[at + size : ends])
    )
    return Hit(position + begins, before, found, after)
