"""Guesses at misspelled words."""

from __future__ import annotations

import pytest

from nimbus.domain.wording import closest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("slotz", ["slots", "id"], "slots"),
        ("maxDelay", ["max_delay", "delay"], "max_delay"),
        ("MAX-DELAY", ["max_delay", "limit"], "max_delay"),
        ("zebra", ["slots", "id"], None),
        ("x", [], None),
    ],
)
def test_closest_finds_what_was_meant_also_across_spellings(
    word: str, known: list[str], meant: str | None
) -> None:
    assert closest(word, known) == meant
