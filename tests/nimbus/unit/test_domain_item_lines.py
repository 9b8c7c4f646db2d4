"""Items of `for_each` in a file: JSON lines."""

from __future__ import annotations

import pytest

from nimbus.domain.runs.children import LARGEST_ITEMS, LONGEST_LINE, ItemsError, items_in


def test_items_are_texts_numbers_booleans_and_objects_however_the_content_is_cut() -> None:
    content = b'"eu"\n7\n\ntrue\r\n{"region": "us", "shard": 1.5}'

    for size in (1, 5, 100):
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        assert items_in(pieces, 4) == ("eu", 7, True, {"region": "us", "shard": 1.5})


def test_empty_file_has_no_items() -> None:
    assert items_in([b"\n"], 1) == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"eu", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"1 2", "is not JSON"),
        (b"1e999", "is not JSON"),
        (b'{"a": -1e999}', "is not JSON"),
        (rb'"\ud800"', "is not JSON"),
        (rb'{"\ud800": 1}', "is not JSON"),
        (b"null", "is no text, number, boolean, or object of these"),
        (b"[1]", "is no text"),
        (b"{}", "is no text"),
        (b'{"a": {"b": 1}}', "is no text"),
        (b'"' + b"x" * (LONGEST_LINE - 1) + b'"', f"has {LONGEST_LINE + 1} bytes"),
    ],
)
def test_bad_line_is_named_with_its_number(line: bytes, said: str) -> None:
    with pytest.raises(ItemsError) as refused:
        items_in([b"1\n\n" + line + b"\n2\n"], 10)

    assert str(refused.value).startswith("line 3: ")
    assert said in str(refused.value)


def test_each_of_several_bad_lines_is_named_up_to_five() -> None:
    with pytest.raises(ItemsError, match=r"line 1: .*; line 2: .*; line 5: is not JSON; and 2 more lines$"):
        items_in([b"x\n" * 7], 7)


def test_more_items_or_bytes_than_allowed_are_refused_before_the_rest_is_read() -> None:
    def content() -> object:
        yield b"1\n" * 11
        raise AssertionError("the rest is read")

    with pytest.raises(ItemsError, match="has more than 10 items"):
        items_in(content(), 10)  # type: ignore[arg-type]
    with pytest.raises(ItemsError, match=f"has more than {LARGEST_ITEMS} bytes"):
        items_in([b"\n" * LARGEST_ITEMS, b"\n"], 10)
