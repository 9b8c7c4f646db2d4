"""Logs in pieces that end with a line, and a search in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from nimbus.web.ansi import marked_up

PIECE_BYTES = 64 * 1024
"""Of one element of the page: a browser leaves out what is not on the screen by whole elements."""
WINDOW_BYTES = 256 * 1024
"""Of one answer."""
_LONGEST_SEARCH = 32 << 20
_SEARCH_STEP = 4 << 20
_MOST_HITS = 100
_CONTEXT = 120

Read = Callable[[int, int], bytes]
"""Bytes of a log, by offset and limit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log."""

    start: int
    end: int
    text: Markup


def pieces(read: Read, start: int, end: int, *, whole: bool) -> list[Piece]:
    """The log from `start` to `end`, in pieces that end with a line as far as lines are that short.

    Args:
        read: Reads the log.
        start: First byte.
        end: First byte that is not shown; at most `WINDOW_BYTES` behind `start`.
        whole: What is behind the last line's end is shown, too: nothing more comes.
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
    """Where a line begins, a little before `offset` or at it."""
    before = max(0, offset - 4096)
    cut = read(before, offset - before).rfind(b"\n") + 1
    return before + cut if cut or before == 0 else offset


@dataclass(frozen=True, slots=True)
class Hit:
    """A line, or a part of it, with what was looked for."""

    offset: int
    """Of the log, where the line or the part begins."""
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found."""

    hits: tuple[Hit, ...]
    searched_to: int
    """Of the log; at its end, or where to go on."""


def search(read: Read, wanted: str, start: int, end: int) -> Search:
    """Look for a text in a log, whatever the case of its ASCII letters; bounded in bytes and in hits."""
    needle = wanted.encode("utf-8", "replace").lower()
    last = min(end, start + _LONGEST_SEARCH)
    hits: list[Hit] = []
    position = start
    while position < last and len(hits) < _MOST_HITS:
        # A step overlaps the next one, so that nothing is missed at the border.
        data = read(position, _SEARCH_STEP + len(needle) - 1)
        if not data:
            break
        places = (at for at in _places(data, needle) if at < _SEARCH_STEP)
        hits += [_hit(data, at, len(needle), position) for at in places]
        position += min(_SEARCH_STEP, len(data))
    more = hits[_MOST_HITS:]
    return Search(tuple(hits[:_MOST_HITS]), more[0].offset if more else min(position, end))


def _places(data: bytes, needle: bytes) -> Iterator[int]:
    """One place in each line."""
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
