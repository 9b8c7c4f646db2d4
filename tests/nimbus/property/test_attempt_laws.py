"""Random histories of one attempt: claim, driver, board and outages in any order."""

from __future__ import annotations

import pytest

from tests.nimbus.attempts.mutants import MUTANTS
from tests.nimbus.attempts.world import play

HISTORIES = 5000
MUTANT_HISTORIES = 3000


def test_no_history_breaks_a_law() -> None:
    broken = {seed: why for seed in range(HISTORIES) if (why := play(seed))}

    assert not broken


@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_is_found(name: str) -> None:
    with MUTANTS[name]():
        assert any(play(seed) for seed in range(MUTANT_HISTORIES))
