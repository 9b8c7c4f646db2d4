"""Files of releases, their differences, and line differences of two texts. Pure.

`difflib` takes minutes for two hostile texts of 256 KiB, and cannot be interrupted. The algorithm here counts
its steps and stops at a limit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import ReleaseDigest


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file, as listed in the manifest."""

    path: str
    size_bytes: int
    sha256: str
    role: str
    """`code`, `configuration` or `dependency`."""
    executable: bool


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs between two releases. None: that release does not have it."""

    path: str
    before: ReleaseFile | None
    after: ReleaseFile | None


@dataclass(frozen=True, slots=True)
class ReleasePublication:
    """The publication of a release, with the time of the publisher's clock."""

    digest: ReleaseDigest
    at: datetime


@dataclass(frozen=True, slots=True)
class Holders:
    """Ids of schedulers by what they report about a release; sorted."""

    holding: tuple[str, ...]
    """Schedulers that have it on disk, verified."""
    lacking: tuple[str, ...]
    silent: tuple[str, ...]
    """Schedulers that have not reported for a while."""


def changed_files(before: Iterable[ReleaseFile], after: Iterable[ReleaseFile]) -> list[FileChange]:
    """The differences, in the order of paths."""
    old, new = ({file.path: file for file in files} for files in (before, after))
    return [
        FileChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


MAX_EDITS = 1_000
"""Limit of removed and added lines. Memory use is its square, in units of two bytes."""
MAX_STEPS = 1_000_000
"""Limit of comparisons of lines: about half a second."""
_CONTEXT = 3
"""Number of equal lines that are shown around a difference."""


class TooDifferentError(NimbusError):
    """Two texts differ in too many places to compute the difference."""

    code = "too_different"

    def __init__(self) -> None:
        super().__init__(f"more than {MAX_EDITS:,} lines differ, or too many are alike")


class _Edit(NamedTuple):
    """One line: `-` of the first text, `+` of the second, or ` ` of both."""

    sign: str
    old: int
    """Number of lines of the first text before this line."""
    new: int


def unified_diff(before: str, after: str) -> list[str]:
    """The lines of a unified diff, without the two header lines; empty: the texts are equal.

    Raises:
        TooDifferentError: the comparison would take too long.

    Source: E. Myers, An O(ND) Difference Algorithm and Its Variations, 1986.
    """
    old, new = _lines(before), _lines(after)
    edits = list(_edits(old, new))
    lines: list[str] = []
    for first, last in _hunks(edits):
        hunk = edits[first:last]
        removed = sum(edit.sign != "+" for edit in hunk)
        added = sum(edit.sign != "-" for edit in hunk)
        lines.append(f"@@ -{_range(hunk[0].old, removed)} +{_range(hunk[0].new, added)} @@")
        for sign, at_old, at_new in hunk:
            line = new[at_new] if sign == "+" else old[at_old]
            lines.append(sign + line.removesuffix("\n"))
            if not line.endswith("\n"):
                lines.append("\\ No newline at end of file")
    return lines


def _lines(text: str) -> list[str]:
    """The lines of a text, each with its end. Only a line feed ends a line."""
    parts = [f"{part}\n" for part in text.split("\n")]
    last = parts.pop()[:-1]
    return [*parts, last] if last else parts


def _range(before: int, count: int) -> str:
    start = before + 1 if count else before
    return f"{start}" if count == 1 else f"{start},{count}"


def _hunks(edits: Sequence[_Edit]) -> Iterator[tuple[int, int]]:
    """Ranges of edits to show: the differences, with some lines around them."""
    first = last = -1
    for number, edit in enumerate(edits):
        if edit.sign == " ":
            continue
        if first >= 0 and number - last > 2 * _CONTEXT:
            yield first, last + _CONTEXT
            first = -1
        if first < 0:
            first = max(0, number - _CONTEXT)
        last = number + 1
    if first >= 0:
        yield first, min(len(edits), last + _CONTEXT)


def _edits(old: Sequence[str], new: Sequence[str]) -> Iterator[_Edit]:
    """All lines of both texts, in order."""
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    tail = next((n for n in range(least - head) if old[-1 - n] != new[-1 - n]), least - head)
    numbers: dict[str, int] = {}
    a, b = (
        [numbers.setdefault(line, len(numbers)) for line in text[head : len(text) - tail]]
        for text in (old, new)
    )
    yield from (_Edit(" ", n, n) for n in range(head))
    yield from (_Edit(sign, head + x, head + y) for sign, x, y in _path(a, b))
    yield from (_Edit(" ", len(old) - tail + n, len(new) - tail + n) for n in range(tail))


def _path(a: Sequence[int], b: Sequence[int]) -> list[_Edit]:
    """The shortest edit path, traced back from the last of `_rounds`."""
    rounds = _rounds(a, b)
    x, y = len(a), len(b)
    path: list[_Edit] = []
    for edits in range(len(rounds) - 1, 0, -1):
        before, k = rounds[edits - 1], x - y
        # Index i of a round with d edits is the diagonal 2i - d.
        at = (k + edits) // 2
        is_down = at == 0 or (at < edits and before[at - 1] < before[at])
        from_x = before[at] if is_down else before[at - 1]
        from_y = from_x - (k + 1 if is_down else k - 1)
        start_x = from_x if is_down else from_x + 1
        while x > start_x:
            x, y = x - 1, y - 1
            path.append(_Edit(" ", x, y))
        x, y = from_x, from_y
        path.append(_Edit("+" if is_down else "-", x, y))
    path += [_Edit(" ", n, n) for n in range(x - 1, -1, -1)]
    return path[::-1]


def _rounds(a: Sequence[int], b: Sequence[int]) -> list[array[int]]:
    """For each number of edits, how far into `a` each diagonal reaches; the last one reaches the end.

    Raises TooDifferentError: there are more edits, or more steps, than allowed.
    """
    steps, rounds = 0, [array("i")]
    while True:
        edits, before = len(rounds) - 1, rounds[-1]
        reached = array("i")
        for at in range(edits + 1):
            k = 2 * at - edits
            if not edits:
                x = 0
            elif at == 0 or (at < edits and before[at - 1] < before[at]):
                x = before[at]
            else:
                x = before[at - 1] + 1
            start = x
            while x < len(a) and 0 <= x - k < len(b) and a[x] == b[x - k]:
                x += 1
            steps += 1 + x - start
            reached.append(x)
            if x == len(a) and x - k == len(b):
                return [*rounds[1:], reached]
        rounds.append(reached)
        if steps > MAX_STEPS or edits >= MAX_EDITS:
            raise TooDifferentError
