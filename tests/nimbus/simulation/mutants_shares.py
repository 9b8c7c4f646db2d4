"""Bugs of the shares of teams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nimbus.engine.run_queue import RunQueue
from nimbus.engine.state import State
from nimbus.engine.state.runs import Runs
from nimbus.engine.workers import Workers
from tests.nimbus.simulation.mutant import mutant, replaced


@mutant
def most_urgent_task_of_all_teams_is_first() -> Iterator[None]:
    """AF 72730: one team with many tasks starves the others."""
    with replaced(State, _part=lambda _self, _want: 0.0):
        yield


@mutant
def weights_of_teams_do_not_count() -> Iterator[None]:
    """Each team gets the same."""
    original = State._part

    def part(self: Any, want: Any) -> float:
        return original(self, want) * float(self.settings.weight_of(want.team))

    with replaced(State, _part=part):
        yield


@mutant
def ended_attempts_count_for_their_team() -> Iterator[None]:
    """AF 58752: a counter of what runs is not taken back at each end."""
    original = Workers.closed

    def closed(self: Any, attempt: Any) -> None:
        held = {group: slots.held.copy() for group, slots in self._groups.items()}
        original(self, attempt)
        for group, slots in self._groups.items():
            slots.held.update(held[group] - slots.held)

    with replaced(Workers, closed=closed):
        yield


@mutant
def oldest_queued_run_of_all_teams_is_first() -> Iterator[None]:
    """AF 58554: one team fills the limit of running runs."""
    with replaced(RunQueue, running=lambda _self, _team: 0):
        yield


@mutant
def runs_stay_with_the_team_that_had_them() -> Iterator[None]:
    """A new owner does not take the attempts of its pipeline with it; a new leader counts them for nobody."""
    with replaced(Runs, count_again=lambda _self, _pipeline: None):
        yield
