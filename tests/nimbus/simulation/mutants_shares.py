"""Bugs of the shares of teams, and of holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nimbus.definition.cron import fires_between
from nimbus.domain.runs import lifecycle
from nimbus.domain.writes import PutRun
from nimbus.engine.decision import Decision, NoDecision
from nimbus.engine.rules import run_starts, schedules
from nimbus.engine.rules.commands import settings
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.state import State
from nimbus.engine.state.catalog import Catalog
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
    """DS 9910: a counter of what runs is not taken back at each end."""
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


@mutant
def hold_stops_only_schedules() -> Iterator[None]:
    """A run that people ask for begins all the same."""
    with replaced(run_starts, _is_held=lambda _state, _run: False):
        yield


@mutant
def queue_goes_on_behind_a_hold() -> Iterator[None]:
    """A hold does not concern runs that are queued already."""
    original = RunQueue.__init__

    def init(self: Any, *args: Any) -> None:
        original(self, *args)
        self._is_held = lambda _pipeline: False

    with replaced(RunQueue, __init__=init), replaced(run_starts, start_queued=_start_queued):
        yield


def _start_queued(state: Any, run_id: Any, now: Any) -> Any:
    run = state.runs.live[run_id]
    if not run_starts._has_room(state, run, run.holds):
        return NoDecision()
    write = PutRun(lifecycle.started(run, now), run)
    return Decision(name="queued_run_started", writes=(write,), about={"run": run_id})


@mutant
def schedule_passes_over_what_is_held() -> Iterator[None]:
    """What came due during a hold is lost."""
    original = schedules.fire_schedule

    def fire(state: Any, name: Any, now: Any) -> Any:
        record = state.catalog.pipelines.get(name)
        if record is None or not state.catalog.is_held(name) or not record.is_scheduled:
            return original(state, name, now)
        for schedule in record.profile.schedules:
            passed = fires_between(schedule, record.position_of(schedule) or now, now, 1000)
            if passed:
                moved = schedules._moved(record, schedule, passed, "held", now)
                return schedules._skipped(record, moved)
        return original(state, name, now)

    with replaced(schedules, fire_schedule=fire):
        yield


@mutant
def end_of_a_hold_wakes_nobody() -> Iterator[None]:
    """What waits is looked at only when something else happens."""

    def put(self: Any, holds: Any) -> None:
        self.holds = holds

    with replaced(Catalog, put_holds=put):
        yield


@mutant
def hold_lasts_until_somebody_ends_it() -> Iterator[None]:
    """DS 14149: a pause that never ends."""
    with replaced(settings, end_hold=lambda _state, _name, _now: NoDecision()):
        yield
