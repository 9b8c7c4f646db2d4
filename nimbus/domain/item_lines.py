"""Items of `for_each` in a file of JSON lines: texts, numbers, booleans, or objects of these. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

LONGEST_LINE = 500
"""Limit of an item, in bytes of JSON: see `nimbus.run_record.ITEMS_IN_NODE`."""
LARGEST_ITEMS = 512 * 1024
"""Limit of all items of a task, in bytes of JSON: one transaction writes them."""
MOST_NAMED = 5
"""How many bad lines a text names. It only counts the others."""


class ItemsError(Exception):
    """A file has no usable items."""


def items_in(pieces: Iterable[bytes], most: int) -> tuple[Any, ...]:
    """The items in the content of a file, which is read up to its limits. Empty lines are left out.

    Args:
        pieces: The content.
        most: Limit of the items.

    Raises:
        ItemsError: names each bad line with its number, or says that there are too many items or bytes.
    """
    items: list[Any] = []
    bad: list[str] = []
    for number, line in enumerate(_lines(pieces), 1):
        if not line.strip():
            continue
        try:
            items.append(_item(line))
        except ValueError as exc:
            bad.append(f"line {number}: {exc}")
        if len(items) + len(bad) > most:
            raise ItemsError(f"has more than {most} items, which is max_items: nothing was started")
    if bad:
        more = [f"and {len(bad) - MOST_NAMED} more lines"] if len(bad) > MOST_NAMED else []
        raise ItemsError("; ".join([*bad[:MOST_NAMED], *more]))
    return tuple(items)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    size, rest = 0, b""
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ITEMS:
            raise ItemsError(f"has more than {LARGEST_ITEMS} bytes")
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _item(line: bytes) -> Any:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"has {len(line)} bytes, {LONGEST_LINE} is the most")
    try:
        item = json.loads(line, parse_constant=_refused)
        # Refuses what only Python reads: numbers that become infinite, and halves of surrogate pairs.
        json.dumps(item, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        raise ValueError("is not JSON") from None
    values = item.values() if isinstance(item, dict) else [item]
    if not values or not all(isinstance(value, str | int | float | bool) for value in values):
        raise ValueError("is no text, number, boolean, or object of these")
    return item


def _refused(constant: str) -> None:
    raise ValueError(constant)
