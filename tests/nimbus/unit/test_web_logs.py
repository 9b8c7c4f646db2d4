"""Logs on pages: colours, pieces, search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.wording import format_size, format_span
from nimbus.web.task import log as log_pieces
from nimbus.web.task.log import (
    PIECE_BYTES,
    Hit,
    LineNumbers,
    last_lines,
    level_of,
    line_start,
    marked_up,
    pieces,
    search,
)

_LINES = 1_000


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a < b", "a &lt; b"),
        ("\x1b[31;1mred\x1b[0m <b>", '<span class="ab c1">red</span> &lt;b&gt;'),
        ("\x1b[32mgreen\x1b[39m plain", '<span class="c2">green</span> plain'),
        ("\x1b[38;5;200mx\x1b[48;2;1;2;3my", "xy"),
        ("\x1b[2K\x1b]0;title\x07kept\x1b", "kept"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ('\x1b[31m"><script>', '<span class="c1">&#34;&gt;&lt;script&gt;</span>'),
        ("\x1b[" + "9" * 5000 + "mx", "x"),
    ],
)
def test_log_text_is_escaped_and_its_colours_become_classes(text: str, html: str) -> None:
    assert marked_up(text) == html


def _reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, limit: data[offset : offset + limit]


def test_pieces_end_with_lines_and_leave_out_an_unfinished_one() -> None:
    data = b"one\ntwo\nthr"

    (open_,) = pieces(data, 0, whole=False, lines=_LINES)
    (ended,) = pieces(data, 0, whole=True, lines=_LINES)

    assert (open_.start, open_.end, open_.text) == (0, 8, "one\ntwo\n")
    assert (ended.end, ended.text) == (11, "one\ntwo\nthr")


def test_pieces_join_to_the_whole_log_wherever_they_begin() -> None:
    data = b"".join(b"line %d\n" % n for n in range(30_000)) + b"x" * 3 * PIECE_BYTES
    start = line_start(_reader(data), 100_003)

    found, at = b"", start
    while at < len(data):
        for piece in pieces(data[at:], at, whole=True, lines=_LINES):
            assert (piece.start, piece.end - piece.start <= PIECE_BYTES) == (at, True)
            found, at = found + piece.text.encode(), piece.end

    assert data[start - 1 : start] == b"\n"
    assert found == data[start:]


_LINK = '<a id="L{0}" href="#L{0}" aria-label="{0}" tabindex="-1"></a>'


def test_lines_have_numbers_that_link_and_levels_that_their_stacks_share() -> None:
    text = "a\x1b[31mb\nc\x1b[0m ERROR <x>\n  at y\nINFO ERROR\nlast"
    lines = [
        'a<span class="c1">b\n</span>',
        '<span class="le"><span class="c1">c</span> ERROR &lt;x&gt;\n</span>',
        '<span class="le">  at y\n</span>',
        "INFO ERROR\n",
        "last",
    ]

    assert marked_up(text, 7) == "".join(_LINK.format(7 + at) + line for at, line in enumerate(lines))
    assert marked_up("of a long line\nnext\n", 7, mid_line=True) == f"of a long line\n{_LINK.format(8)}next\n"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-11-30 03:59:15,314 ERROR shop: no", "error"),
        ("26/11/30 03:59:15 WARN TaskSetManager: Lost task 0.0: java.lang.Error: ERROR", "warning"),
        ("\x1b[31mCRITICAL\x1b[0m", "error"),
        ("2026-11-30 [error    ] run_failed", "error"),
        ('{"level": "warning", "event": "x"}', "warning"),
        ("level=debug x", "debug"),
        ("ValueError: no", "error"),
        ("a.py:3: DeprecationWarning: no", "warning"),
        ("Caused by: java.io.IOException: no", "error"),
        ("INFO 3 of ERROR", ""),
        ("no error, and no warning", ""),
        ("x" * 300 + " ERROR", ""),
    ],
)
def test_level_is_that_of_the_first_word_of_a_level(line: str, level: str) -> None:
    assert level_of(line) == level


def test_pieces_are_bounded_in_lines_and_number_them() -> None:
    data = b"\n" * 5_000

    found = pieces(data, 0, whole=True, lines=_LINES, line=1)
    (giant,) = pieces(b"x" * 100, 10, whole=True, lines=_LINES, line=3, mid_line=True)

    assert (found[-1].end, "".join(piece.text for piece in found).count("<a ")) == (
        _LINES,
        _LINES,
    )
    assert giant.text == "x" * 100
    assert (len(last_lines(data, _LINES)), last_lines(b"a\nb\nc", _LINES)) == (_LINES, b"a\nb\nc")


_LOG = AttemptId(RunId("r1"), TaskName("extract"), 1)


def test_line_numbers_and_offsets_belong_to_each_other_wherever_they_are() -> None:
    lines = [b"x" * (n % 97) + b"\n" for n in range(20_000)] + [b"y" * 600_000 + b"\n", b"z\n"]
    data, numbers = b"".join(lines), LineNumbers()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    for number in (1, 2, 5_000, 10_001, 19_999, 20_001, 20_002):
        start = starts[number - 1]
        assert numbers.find(_LOG, _reader(data), number, len(data)) == start, number
        assert numbers.at(_LOG, _reader(data), start) == number
    assert numbers.find(_LOG, _reader(data), 99_999, len(data)) == len(data)
    assert (numbers.find(_LOG, _reader(b""), 1, 0), LineNumbers().find(_LOG, _reader(b""), 7, 0)) == (0, 0)


def test_counting_lines_reads_no_more_than_a_search_and_goes_on_later() -> None:
    read: list[int] = []

    def reader(offset: int, limit: int) -> bytes:
        read.append(max(0, min(limit, (40 << 20) - offset)))
        return b"\n" * read[-1]

    numbers = LineNumbers()
    first = numbers.at(_LOG, reader, 40 << 20)
    bytes_read = sum(read)
    second = numbers.at(_LOG, reader, 40 << 20)

    assert (first, second) == (None, (40 << 20) + 1)
    assert bytes_read <= 32 << 20
    assert sum(read) <= 41 << 20


def test_search_by_level_finds_lines_with_their_numbers() -> None:
    data = b"".join(
        b"INFO %d\n%s" % (n, b"WARN late %d\nerrors: 0\nERROR at %d\n" % (n, n)) for n in range(30)
    )

    errors = search(_reader(data), "", 0, len(data), levels=("error",), line=1)
    both = search(_reader(data), "LATE", 0, len(data), levels=("error", "warning"), line=1)

    assert [(hit.line, hit.before + hit.found + hit.after) for hit in errors.hits[:2]] == [
        (4, "ERROR at 0"),
        (8, "ERROR at 1"),
    ]
    assert [hit.line for hit in both.hits[:2]] == [2, 6]
    assert (len(errors.hits), len(both.hits)) == (30, 30)


def test_search_finds_each_line_once_across_the_borders_of_its_steps() -> None:
    line = b"%06d some words\n"
    data = b"".join(line % n for n in range(400_000))
    border = 4 << 20
    data = data[: border - 3] + b"NeeDle" + data[border + 3 :]

    found = search(_reader(data), "needle", 0, len(data))

    (hit,) = found.hits
    assert hit.found == "NeeDle"
    assert data[hit.offset : hit.offset + 4].startswith(hit.before[:4].encode())
    assert found.searched_to == len(data)


def test_search_says_where_to_go_on_when_it_found_enough() -> None:
    data = b"".join(b"hit %d\n" % n for n in range(1000))

    first = search(_reader(data), "hit", 0, len(data))
    rest = search(_reader(data), "hit", first.searched_to, len(data))

    assert (len(first.hits), first.hits[-1].after, rest.hits[0].after) == (100, " 99", " 100")


def test_search_looks_no_further_than_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    hit = log_pieces._hit

    def counted(*given: Any) -> Hit:
        made.append(given[1])
        return hit(*given)

    monkeypatch.setattr(log_pieces, "_hit", counted)
    data = b"a\n" * 100_000

    found = search(_reader(data), "a", 0, len(data))

    assert (len(found.hits), found.searched_to) == (100, 200)
    assert len(made) <= 101


def test_durations_and_sizes_are_in_their_largest_units() -> None:
    assert [format_span(s) for s in (0, 0.25, 59.6, 61, 3605, 90_000)] == [
        "0 s", "250 ms", "1 min", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip
    assert [format_size(n) for n in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
