"""What came is compared with what was asked for."""

from __future__ import annotations

import pytest

from blobsync.storage.s3_range import Given, Wanted, given


@pytest.mark.parametrize(
    ("start", "size_bytes", "header"),
    [(0, None, None), (0, 1, "bytes=0-0"), (5, None, "bytes=5-"), (5, 10, "bytes=5-14")],
)
def test_range_is_asked_for_only_when_a_part_is_wanted(
    start: int, size_bytes: int | None, header: str | None
) -> None:
    assert Wanted("k", start, size_bytes).header == header


@pytest.mark.parametrize(
    ("told", "body", "start", "size_bytes", "use"),
    [
        # The right range, also at the end of the object, also where the total is not told.
        ("bytes 5-14/100", 10, 5, 10, Given(0, 10)),
        ("bytes 95-99/100", 5, 95, 10, Given(0, 5)),
        ("bytes 95-99/*", 5, 95, 10, Given(0, 5)),
        ("bytes 5-99/100", 95, 5, None, Given(0, 95)),
        # More than was asked for is cut.
        ("bytes 5-99/100", 95, 5, 10, Given(0, 10)),
        # The server did not heed the range.
        (None, 100, 5, 10, Given(5, 10)),
        (None, 100, 95, 10, Given(95, 5)),
        (None, 100, 5, None, Given(5, 95)),
        (None, 100, 200, 10, Given(100, 0)),
        (None, 100, 0, None, Given(0, 100)),
        # Another range, or words that do not fit the body.
        ("bytes 6-15/100", 10, 5, 10, None),
        ("bytes 5-14/100", 9, 5, 10, None),
        ("bytes 5-9/100", 5, 5, 10, None),
        ("bytes 5-9/100", 5, 5, None, None),
        ("bytes 0-9/100", 10, 0, None, None),
        ("pages 5-14/100", 10, 5, 10, None),
        ("bytes 5-14", 10, 5, 10, None),
        ("bytes 14-5/100", 10, 14, 10, None),
        ("bytes \u0665-14/100", 10, 5, 10, None),
    ],
)
def test_answer_is_used_as_far_as_it_fits_the_question(
    told: str | None, body: int, start: int, size_bytes: int | None, use: Given | None
) -> None:
    assert given(told, body, Wanted("k", start, size_bytes)) == use
