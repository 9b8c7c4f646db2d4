"""The whole cluster in virtual time, with faults: no seed breaks a law. `make simulate` runs many more."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules import attempts
from nimbus.engine.state import State
from nimbus.engine.workers import Workers
from tests.nimbus.simulation.mutant import replaced
from tests.nimbus.simulation.mutants import MUTANTS
from tests.nimbus.simulation.runner import Tally, find, run_seeds, tell
from tests.thorough import at_most

SEEDS = range(30)
"""Not fewer, or some outcome is not met."""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_seeds(SEEDS)


def test_simulated_clusters_break_no_law_whatever_dies_when(tally: Tally) -> None:
    assert tally.bad == {}


def test_simulated_clusters_meet_every_outcome_and_do_work_all_the_same(tally: Tally) -> None:
    outcomes = ("succeeded", "failed", "timed_out", "stopped", "lost", "fenced", "refused")
    assert [what for what in outcomes if not tally.met[what]] == []
    assert tally.met["leaderships"] > 2 * len(SEEDS)
    assert tally.met["runs"] > 4 * len(SEEDS)
    assert tally.met["leaders at rest"] > 8 * len(SEEDS)
    assert tally.met["raised schemas"] > len(SEEDS) / 4


def test_equal_seeds_give_equal_stories_in_every_process() -> None:
    stories = [
        subprocess.run(
            [sys.executable, "-m", "tests.nimbus.simulation", "--seed", "287"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert stories[0] == stories[1]
    assert stories[0].count(b" commits in epoch ") > 10


def test_broken_law_is_told_with_its_seed_its_step_and_the_last_steps() -> None:
    out = io.StringIO()

    assert tell(0, out, mutant="finished_run_is_dropped_early") == 1
    assert "seed 0, step " in out.getvalue()
    assert "[ARCHIVED]" in out.getvalue()
    assert out.getvalue().count("\n") > 10


def test_simulation_finds_most_built_in_faults_within_a_few_seeds() -> None:
    """`make simulate` finds all of them, with more seeds."""
    found = islice((name for name in MUTANTS if find(name, 8) is not None), wanted := at_most(5))

    assert len(list(found)) == wanted


def test_built_in_fault_that_only_raises_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def misfit() -> Iterator[None]:
        with replaced(Workers, closed=lambda: None):
            yield

    monkeypatch.setitem(MUTANTS, "misfit", misfit)

    assert find("misfit", 5) is None


def test_mutants_leave_the_real_code_as_it_was() -> None:
    before = dict(vars(LeaderTerm)), dict(vars(State)), dict(vars(attempts))
    for mutate in MUTANTS.values():
        with mutate():
            pass

    assert (dict(vars(LeaderTerm)), dict(vars(State)), dict(vars(attempts))) == before
