"""Sizes of tests: a sample in `make check` and `make test`, everything in `make simulate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.report import number_from

thorough = pytest.mark.thorough

TIMES = number_from("NIMBUS_LAW_TIMES", 1)


def examples(sample: int) -> int:
    """Number of random examples of a law: `sample`, times NIMBUS_LAW_TIMES."""
    return sample * TIMES


def sampled(values: Iterable[Any], sample: int) -> list[Any]:
    """Parameters of a test. Those after the first `sample` are marked thorough."""
    return [value if at < sample else pytest.param(value, marks=thorough) for at, value in enumerate(values)]
