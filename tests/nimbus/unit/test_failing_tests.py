"""A failing test fails at once."""

from __future__ import annotations

import random

import pytest


def test_assertion_on_large_values_fails_at_once_also_where_diffs_are_drawn_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pytest's diff of these two would take hours."""
    monkeypatch.setenv("CI", "true")
    left, right = (random.Random(seed).randbytes(300_000) for seed in (1, 2))
    with pytest.raises(AssertionError, match="At index 0 diff"):
        assert left == right
    with pytest.raises(AssertionError, match="Differing items"):
        assert {"one": left, "two": 2} == {"one": right, "two": 2}


def test_small_values_are_still_drawn_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="Full diff"):
        assert list(range(100)) == list(range(1, 101))
