"""How much a test tries: a sample in `make check` and `make test`, all of it in `make simulate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.chaos.report import number_from

thorough = pytest.mark.thorough

TIMES = number_from("NIMBUS_LAW_TIMES", 1)


def examples(sample: int) -> int:
    """How many random examples a law is tried with: `sample`, times NIMBUS_LAW_TIMES."""
    return sample * TIMES


def sampled(values: Iterable[Any], sample: int) -> list[Any]:
    """Values to parametrize a test with; those after the first `sample` are marked thorough."""
    return [value if at < sample else pytest.param(value, marks=thorough) for at, value in enumerate(values)]
