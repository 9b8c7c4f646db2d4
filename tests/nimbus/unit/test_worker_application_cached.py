"""Cached figures."""

from __future__ import annotations

import time

import pytest

from nimbus.worker.application.manager import Cached


@pytest.mark.parametrize(("figure", "kept_s"), [("4 of 4 cores", 10.0), ("", 60.0)])
def test_figures_are_read_again_after_ten_seconds_and_after_a_minute_if_nobody_told_them(
    figure: str, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, reads = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    kept = Cached(lambda: reads.append(now_s) or figure)  # type: ignore[func-returns-value]

    assert kept.value() == figure
    now_s += kept_s - 0.1
    assert kept.value() == figure
    assert len(reads) == 1
    now_s += 0.2
    assert kept.value() == figure
    assert len(reads) == 2
