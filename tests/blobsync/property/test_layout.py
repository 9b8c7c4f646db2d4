"""Laws of layouts: a written layout is read back, and no invalid one is read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobsync.errors import InvalidLayoutError
from blobsync.release.layout import MAX_LAYOUT_BYTES, MAX_PACKS, MAX_PUBLISHER_CHARS, Layout, Pack
from blobsync.release.pack import MAX_PACK_BYTES, MIN_PACK_BYTES

names = st.text("0123456789abcdef", min_size=64, max_size=64)
packs = st.builds(Pack, name=names, size_bytes=st.integers(MIN_PACK_BYTES, MAX_PACK_BYTES))
zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
layouts = st.builds(
    Layout,
    packs=st.lists(packs, max_size=8, unique_by=lambda pack: pack.name).map(tuple),
    published_by=st.text(max_size=MAX_PUBLISHER_CHARS).filter(str.isprintable),
    published_at=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones),
)
VALID = Layout((Pack("a" * 64, 100), Pack("b" * 64, 200)), "ci", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@given(layout=layouts)
def test_what_was_written_is_read_back(layout: Layout) -> None:
    again = Layout.parse(layout.encode())

    assert again == layout
    assert again.encode() == layout.encode()


@given(layout=layouts)
def test_layout_is_the_same_in_whatever_order_its_packs_come(layout: Layout) -> None:
    doubled = (*layout.packs[::-1], *layout.packs)

    assert Layout(doubled, layout.published_by, layout.published_at) == layout


def test_layout_stays_as_it_is_stored() -> None:
    assert VALID.encode() == (
        b'{"packs":[{"name":"' + b"a" * 64 + b'","size_bytes":100},{"name":"' + b"b" * 64 + b'",'
        b'"size_bytes":200}],"published_at":"2026-01-02T03:04:05Z","published_by":"ci","schema":1}'
    )


def test_layout_of_a_newer_version_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(InvalidLayoutError, match="schema 2, this version reads 1; update blobsync"):
        Layout.parse(VALID.encode().replace(b'"schema":1', b'"schema":2'))


def test_largest_layout_is_read() -> None:
    packs = tuple(Pack(f"{number:064x}", MAX_PACK_BYTES) for number in range(MAX_PACKS))
    largest = Layout(packs, "\U0001f680" * MAX_PUBLISHER_CHARS, VALID.published_at)

    assert len(largest.encode()) <= MAX_LAYOUT_BYTES
    assert Layout.parse(largest.encode()) == largest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("schema", 3),
        ("schema", True),
        ("schema", 1.0),
        ("schema", "1"),
        ("schema", None),
        ("packs", {}),
        ("packs", [[]]),
        ("packs", [{"name": "a" * 64}]),
        ("packs", [{"name": "a" * 64, "size_bytes": 100, "more": 1}]),
        ("packs", [{"name": "a" * 64, "size_bytes": True}]),
        ("packs", [{"name": "a" * 64, "size_bytes": 100.0}]),
        ("packs", [{"name": "a" * 64, "size_bytes": MIN_PACK_BYTES - 1}]),
        ("packs", [{"name": "a" * 64, "size_bytes": MAX_PACK_BYTES + 1}]),
        ("packs", [{"name": "a" * 64, "size_bytes": -100}]),
        ("packs", [{"name": "../" + "a" * 61, "size_bytes": 100}]),
        ("packs", [{"name": "A" * 64, "size_bytes": 100}]),
        ("packs", [{"name": "a" * 64 + "\n", "size_bytes": 100}]),
        ("packs", [{"name": 7, "size_bytes": 100}]),
        ("packs", [{"name": "a" * 64, "size_bytes": 100}, {"name": "a" * 64, "size_bytes": 101}]),
        ("packs", [{"name": f"{number:064x}", "size_bytes": 100} for number in range(MAX_PACKS + 1)]),
        ("published_by", None),
        ("published_by", "x" * (MAX_PUBLISHER_CHARS + 1)),
        ("published_by", "a\nb"),
        ("published_by", "\x1b[31m"),
        ("published_by", "\ud800"),
        ("published_at", "2026-02-30T00:00:00Z"),
        ("published_at", "0000-01-01T00:00:00Z"),
        ("published_at", "2026-01-01T00:00:00"),
        ("published_at", "2026-01-01T00:00:00+00:00"),
        ("published_at", "2026-01-01T00:00:00.5Z"),
        ("published_at", "٢٠٢٦-01-01T00:00:00Z"),
        ("published_at", 1),
        ("more", 1),
    ],
)
def test_layout_with_a_value_that_cannot_be_is_refused(field: str, value: object) -> None:
    document = json.loads(VALID.encode())
    assert Layout.parse(json.dumps(document).encode()) == VALID

    with pytest.raises(InvalidLayoutError):
        Layout.parse(json.dumps({**document, field: value}).encode())


@pytest.mark.parametrize("field", ["schema", "packs", "published_by", "published_at"])
def test_layout_that_lacks_something_is_refused(field: str) -> None:
    document = json.loads(VALID.encode())
    del document[field]

    with pytest.raises(InvalidLayoutError):
        Layout.parse(json.dumps(document).encode())


@pytest.mark.parametrize("depth", [*range(300, 1000, 7), *range(880, 1010), 100_000])
def test_layout_of_any_depth_is_refused_not_printed(depth: int) -> None:
    """Some can be parsed, but are too deep for an error message."""
    deep = '{"a":' * depth + "1" + "}" * depth
    for field, text in (("schema", deep), ("packs", f"[{deep}]"), ("packs", deep), ("published_by", deep)):
        values = {"schema": "1", "packs": "[]", "published_by": '"a"', "published_at": '"b"', field: text}
        data = "{" + ",".join(f'"{key}":{value}' for key, value in values.items()) + "}"

        with pytest.raises(InvalidLayoutError):
            Layout.parse(data.encode())
