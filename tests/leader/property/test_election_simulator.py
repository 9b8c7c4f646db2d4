"""Elections in virtual time, under faults: no seed breaks a law. `make simulate` runs many more of them."""

from __future__ import annotations

import io

import pytest

from tests.leader.election.history import Kind
from tests.leader.election.runner import Tally, main, quiet, run_seeds
from tests.leader.election.simulator import Simulator
from tests.leader.election.world import Settings
from tests.thorough import examples

_SEEDS = range(100)


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_seeds(_SEEDS)


def test_simulated_elections_break_no_law(tally: Tally) -> None:
    assert {seed: [str(one) for one in found] for seed, found in tally.bad.items()} == {}


def test_simulated_elections_meet_every_kind_of_fault_and_elect_all_the_same(tally: Tally) -> None:
    assert len(tally.faults) == 30
    assert sum(tally.faults.values()) > 5 * len(_SEEDS)
    assert tally.leaderships > 2 * len(_SEEDS)


def test_equal_seeds_give_equal_histories() -> None:
    with quiet():
        first, second = Simulator(7).run(), Simulator(7).run()

    assert first.history == second.history
    assert first.history != Simulator(8).run().history


def test_story_of_a_seed_is_told_without_changing_it() -> None:
    with quiet():
        told, untold = Simulator(7, telling=True).run(), Simulator(7).run()
    out = io.StringIO()
    main(["--seed", "7"], out)

    assert told.history == untold.history
    assert untold.story == []
    assert out.getvalue().count("\n") == len(told.story)
    assert "CONFIRMED epoch" in out.getvalue()


def test_calm_elections_have_one_leader_from_the_first_moment_to_the_last() -> None:
    with quiet():
        outcome = Simulator(3, Settings(faults=(0, 0))).run()

    confirmed = [moment for moment in outcome.history if moment.kind is Kind.CONFIRMED]
    assert outcome.violations == []
    # Guards refuse at random even without faults, so there may be more than one term, one after the other.
    assert confirmed
    assert outcome.leaderships == len(confirmed)


def test_nobody_outlives_its_session_when_signs_of_life_are_cut_off_from_the_ensembles_leader() -> None:
    storm = Settings(
        session_ticks=(4, 10),
        sync_ticks=(20,),
        servers=(3,),
        margins=(0.02,),
        drift=0.0,
        kinds=("isolate server", "isolate and pause", "close", "crash", "abdicate"),
    )
    with quiet():
        broken = {
            seed: str(found)
            for seed in range(examples(30))
            for found in Simulator(seed, storm).run().violations
        }

    assert broken == {}
