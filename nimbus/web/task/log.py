"""Splits logs into pieces and numbered lines, with levels and colours as CSS classes; searches in them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from threading import Lock
from typing import NamedTuple

from markupsafe import Markup, escape

from nimbus.domain.ids import AttemptId

_SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m")
_OTHERS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_CODES = {1: "ab", 2: "af", 3: "ai", 4: "au", 7: "ar"}
_UNDO = {22: {"ab", "af"}, 23: {"ai"}, 24: {"au"}, 27: {"ar"}}
_COLOURS = {30 + n: f"c{n}" for n in range(8)} | {90 + n: f"c{n}" for n in range(8)}


def marked_up(text: str, line: int | None = None, *, mid_line: bool = False) -> Markup:
    """The text, escaped, with `<span class>` where a terminal would change its colours, and for levels.

    Other control sequences are dropped. `line`: number of the first line; None: lines get no number.
    `mid_line`: the text begins within that line, which gets its number elsewhere.
    """
    parts: list[Markup] = []
    classes: set[str] = set()
    level = ""
    *lines, last = text.replace("\r\n", "\n").split("\n")
    for at, text_line in enumerate([*(f"{whole}\n" for whole in lines), *([last] if last else [])]):
        if line is not None and not (mid_line and at == 0):
            parts.append(_NUMBER.format(line + at))
        if not (level and text_line.startswith((" ", "\t"))):  # the lines of a stack are below their error
            level = level_of(text_line)
        shown = _coloured(text_line, classes)
        parts.append(Markup('<span class="l{}">{}</span>').format(level[0], shown) if level else shown)
    return Markup("").join(parts)


_NUMBER = Markup('<a id="L{0}" href="#L{0}" aria-label="{0}" tabindex="-1"></a>')
"""CSS shows the number from the label, so neither the browser's search nor a copied text contains it."""


def _coloured(line: str, classes: set[str]) -> Markup:
    """One line. `classes`: those in force at its start, replaced by those at its end."""
    parts: list[Markup] = []
    # Odd parts are the contents of sequences.
    for number, part in enumerate(_SEQUENCE.split(line)):
        if number % 2:
            now = _after(classes, part)
            classes.clear()
            classes |= now
            continue
        plain = escape(_OTHERS.sub("", part.replace("\r", "\n")))
        if plain and classes:
            plain = Markup('<span class="{}">{}</span>').format(" ".join(sorted(classes)), plain)
        parts.append(plain)
    return Markup("").join(parts)


_LEVEL_WITHIN = 250
"""How many characters at the start of a line may contain its level."""
_LEVEL = re.compile(
    r"(?P<error>\b(?:ERROR|FATAL|CRITICAL|SEVERE)\b|(?:\[|level\W{1,5})(?:error|critical|fatal)\b"
    r"|^Traceback \(most recent|^(?:Caused by: |Exception in thread )|^[\w.]*(?:Error|Exception)(?::|$))"
    r"|(?P<warning>\bWARN(?:ING)?\b|(?:\[|level\W{1,5})warn(?:ing)?\b|\b[A-Z]\w*Warning: )"
    r"|(?P<debug>\b(?:DEBUG|TRACE)\b|(?:\[|level\W{1,5})(?:debug|trace)\b)"
    r"|\bINFO\b|(?:\[|level\W{1,5})info\b"
)
"""Levels as logging, Spark's log4j, structlog and JSON write them, errors and warnings of Python and Java."""


_WORDS = {
    "error": (b"error", b"exception", b"fatal", b"critical", b"severe", b"traceback", b"caused by"),
    "warning": (b"warn",),
}
"""Each line of such a level contains one of these, in any case."""


def level_of(line: str) -> str:
    """`error`, `warning` or `debug`, by the first level in the line; empty: another one, or none."""
    match = _LEVEL.search(_SEQUENCE.sub("", line[:_LEVEL_WITHIN]).rstrip())
    return (match and match.lastgroup) or ""


def _after(classes: set[str], codes: str) -> set[str]:
    """The classes after a sequence. Parameters of 256 colours and true colours are skipped."""
    numbers = [int(code or 0) for code in re.split("[;:]", codes[:64]) if len(code) < 4]
    styles = set(classes)
    while numbers:
        code = numbers.pop(0)
        if code in (38, 48):
            del numbers[: {5: 2, 2: 4}.get(numbers[0] if numbers else 0, 0)]
        elif code == 0:
            styles = set()
        elif code in _CODES:
            styles.add(_CODES[code])
        elif code in _UNDO:
            styles -= _UNDO[code]
        elif code in _COLOURS or code == 39:
            styles = {style for style in styles if style[0] != "c"} | (
                {_COLOURS[code]} if code != 39 else set()
            )
    return styles


PIECE_BYTES = 64 * 1024
"""Size of one element of the page: a browser skips elements that are completely off the screen."""


class Window(NamedTuple):
    """Limits of one answer. The number of a line costs more than a short line."""

    size_bytes: int
    lines: int


PAGE = Window(48 << 10, 1_000)
"""Of a page: packed, it has at most 60 kB, whatever the text."""
PART = Window(256 << 10, 2_000)
"""Of what a script adds to its page."""
_LONGEST_SEARCH = 32 << 20
_SEARCH_STEP = 4 << 20
_MAX_HITS = 100
_CONTEXT = 120
_COUNT_STEP = 256 << 10

Read = Callable[[int, int], bytes]
"""Reads bytes of a log, by offset and limit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log."""

    start: int
    end: int
    text: Markup


def pieces(
    data: bytes, start: int, *, whole: bool, lines: int, line: int | None = None, mid_line: bool = False
) -> list[Piece]:
    """A part of a log in pieces. A piece ends at a line end, unless the line is too long.

    `start`: the offset of `data` in the log; `whole`: an incomplete last line is shown, too, because the log
    has ended; `lines`: limit of lines; `line`, `mid_line`: as of `marked_up`.
    """
    pieces = []
    left = lines
    while data and left:
        cut = len(data) if whole and len(data) <= PIECE_BYTES else data.rfind(b"\n", 0, PIECE_BYTES) + 1
        if not cut and len(data) < PIECE_BYTES:
            break
        cut = cut or PIECE_BYTES
        count = data.count(b"\n", 0, cut)
        if count > left:
            cut, count = cut - len(data[:cut].split(b"\n", left)[-1]), left
        part, data = data[:cut], data[cut:]
        text = marked_up(part.decode("utf-8", "replace"), line, mid_line=mid_line)
        pieces.append(Piece(start, start + cut, text))
        start, left, mid_line = start + cut, left - count, not part.endswith(b"\n")
        line = None if line is None else line + count
    return pieces


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines."""
    parts = data.rsplit(b"\n", count + 1)
    return data[len(parts[0]) + 1 :] if len(parts) > count + 1 else data


class LineNumbers:
    """Counts the lines of logs in steps, once: what is stored of a log does not change. Any thread."""

    _LOGS = 100

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[AttemptId, list[int]] = OrderedDict()
        """Line ends before each step; the first is 0."""
        self._last: dict[AttemptId, tuple[int, int]] = {}
        """The last answer: offset and line ends before it. The next one of a growing log is near."""

    def at(self, log: AttemptId, read: Read, offset: int) -> int | None:
        """Number of the line at `offset`; None: too much must be counted. Each call goes on counting."""
        steps = self._counted(log, read, offset)
        full = offset // _COUNT_STEP
        if full >= len(steps):
            return None
        begins, ends = full * _COUNT_STEP, steps[full]
        last = self._last.get(log, (0, 0))
        if begins < last[0] <= offset:
            begins, ends = last
        ends += read(begins, offset - begins).count(b"\n") if offset > begins else 0
        self._last[log] = (offset, ends)
        return ends + 1

    def find(self, log: AttemptId, read: Read, line: int, size: int) -> int:
        """Offset of a line; of the last counted step if the line is not in the log, or not counted yet."""
        steps = self._counted(log, read, size)
        full = bisect_left(steps, line - 1, 1) - 1
        begins = full * _COUNT_STEP
        missing = line - 1 - steps[full]
        parts = read(begins, _COUNT_STEP).split(b"\n", missing)
        return begins + sum(len(part) + 1 for part in parts[:-1])

    def _counted(self, log: AttemptId, read: Read, offset: int) -> list[int]:
        with self._lock:
            steps = list(self._kept.get(log, (0,)))
        last = len(steps) - 1 + _LONGEST_SEARCH // _COUNT_STEP
        while len(steps) - 1 < min(last, offset // _COUNT_STEP):
            data = read((len(steps) - 1) * _COUNT_STEP, _SEARCH_STEP)
            ends = range(_COUNT_STEP, len(data) + 1, _COUNT_STEP)
            steps += [steps[-1] + data.count(b"\n", 0, end) for end in ends]
            if not ends:
                break
        with self._lock:
            if len(steps) > len(self._kept.get(log, ())):
                self._kept[log] = steps
            self._kept.move_to_end(log)
            while len(self._kept) > self._LOGS:
                self._last.pop(self._kept.popitem(last=False)[0], None)
        return steps


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
    line: int | None
    """Its number; None: not known."""
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search."""

    hits: tuple[Hit, ...]
    searched_to: int
    """Offset in the log up to which it was searched: the end, or where to continue."""


def search(
    read: Read, wanted: str, start: int, end: int, *, levels: tuple[str, ...] = (), line: int | None = None
) -> Search:
    """Search a text in a log, ignoring the case of ASCII letters. Bytes and hits are limited.

    `wanted`: empty: all lines; `levels`: as of `level_of`; empty: all; `line`: number of the line at `start`.
    """
    needle = wanted.encode("utf-8", "replace").lower()
    last = min(end, start + _LONGEST_SEARCH)
    hits: list[Hit] = []
    position = start
    while position < last and len(hits) < _MAX_HITS:
        # Steps overlap, so that no match is missed at a border within a long line.
        data = read(position, _SEARCH_STEP + len(needle))
        if not data:
            break
        cut = len(data) if position + len(data) >= end else _SEARCH_STEP
        cut = cut if cut == len(data) else data.rfind(b"\n", 0, cut) + 1 or cut
        places = (at for at in _places(data, needle, levels) if at < cut)
        wanted_yet = _MAX_HITS + 1 - len(hits)
        counted = 0
        for at in islice(places, wanted_yet):
            if line is not None:
                line += data.count(b"\n", counted, at)
            counted = at
            hits.append(_hit(data, at, len(needle), position, line))
        if line is not None:
            line += data.count(b"\n", counted, cut)
        position += cut
    more = hits[_MAX_HITS:]
    return Search(tuple(hits[:_MAX_HITS]), more[0].offset if more else min(position, end))


def _places(data: bytes, needle: bytes, levels: tuple[str, ...]) -> Iterator[int]:
    """The first match in each line."""
    lowered = data.lower()
    if not levels:
        yield from _first_in_lines(lowered, needle)
        return
    seen = -1
    words = (word for level in levels for word in _WORDS[level])
    for at in merge(*(_first_in_lines(lowered, word) for word in words)):
        begins, ends = lowered.rfind(b"\n", 0, at) + 1, lowered.find(b"\n", at)
        ends = ends if ends >= 0 else len(lowered)
        place = lowered.find(needle, begins, ends)
        if begins == seen or place < 0:
            continue
        seen = begins
        if level_of(data[begins : min(ends, begins + _LEVEL_WITHIN)].decode("latin-1")) in levels:
            yield place


def _first_in_lines(lowered: bytes, needle: bytes) -> Iterator[int]:
    at = -1
    while needle and (at := lowered.find(needle, at + 1)) >= 0:
        yield at
        ends = lowered.find(b"\n", at)
        at = ends if ends >= 0 else len(lowered)


def _hit(data: bytes, at: int, size: int, position: int, line: int | None) -> Hit:
    begins = max(data.rfind(b"\n", 0, at) + 1, at - _CONTEXT)
    ends = data.find(b"\n", at + size)
    ends = min(ends if ends >= 0 else len(data), at + size + _CONTEXT)
    before, hit, after = (
        part.decode("utf-8", "replace")
        for part in (data[begins:at], data[at : at + size], data[at + size : ends])
    )
    return Hit(position + begins, line, before, hit, after)
