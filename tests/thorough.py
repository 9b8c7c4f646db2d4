"""Sizes of tests: a fifth of a sample in `make check` and `make test`, ten times in `make simulate`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

thorough = pytest.mark.thorough

TIMES = float(os.environ.get("NIMBUS_LAW_TIMES", "1"))


def examples(sample: int) -> int:
    """Number of random examples of a law: `sample`, times NIMBUS_LAW_TIMES."""
    return max(1, round(sample * TIMES))


def at_most(number: int) -> int:
    """Number of fixed seeds or faults: `number`, and a part of it if NIMBUS_LAW_TIMES is below 1."""
    return min(number, examples(number))


def sampled(values: Iterable[Any], sample: int) -> list[Any]:
    """Parameters of a test. Those after the first `sample` are marked thorough."""
    return [value if at < sample else pytest.param(value, marks=thorough) for at, value in enumerate(values)]
