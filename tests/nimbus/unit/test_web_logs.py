"""Logs on pages: colours, pieces, search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nimbus.domain.wording import format_size, format_span
from nimbus.web.task import log as log_pieces
from nimbus.web.task.log import PIECE_BYTES, Hit, line_start, marked_up, pieces, search


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

    (open_,) = pieces(_reader(data), 0, len(data), whole=False)
    (ended,) = pieces(_reader(data), 0, len(data), whole=True)

    assert (open_.start, open_.end, open_.text) == (0, 8, "one\ntwo\n")
    assert (ended.end, ended.text) == (11, "one\ntwo\nthr")


def test_pieces_join_to_the_whole_log_wherever_they_begin() -> None:
    data = b"".join(b"line %d\n" % n for n in range(30_000)) + b"x" * 3 * PIECE_BYTES
    start = line_start(_reader(data), 100_003)

    found, at = b"", start
    while at < len(data):
        for piece in pieces(_reader(data), at, len(data), whole=True):
            assert (piece.start, piece.end - piece.start <= PIECE_BYTES) == (at, True)
            found, at = found + piece.text.encode(), piece.end

    assert data[start - 1 : start] == b"\n"
    assert found == data[start:]


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
