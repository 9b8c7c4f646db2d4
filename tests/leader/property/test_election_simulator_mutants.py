"""Bugs that other elections had, built into ours: the simulator finds each of them.

To be quick, each runs with settings whose faults reveal it. `make simulate` runs these, and finds them with
the usual settings, too.
"""

from __future__ import annotations

import pytest

from leader.core.latch.steps import LatchSteps
from tests.leader.election.mutants import MUTANTS
from tests.leader.election.runner import find
from tests.thorough import thorough

_SEEDS = 1000


@thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_simulator_finds_the_fault(name: str) -> None:
    found = find(name, seeds=_SEEDS, storm=MUTANTS[name].storm)

    assert found is not None, f"{name} broke no law in {_SEEDS} runs"
    print(f"{name}: seed {found[0]}, {found[1].law.value}")  # noqa: T201 - shown with -s


def test_mutants_leave_the_real_code_as_it_was() -> None:
    before = dict(vars(LatchSteps))
    for mutant in MUTANTS.values():
        with mutant.build_in():
            pass

    assert dict(vars(LatchSteps)) == before
