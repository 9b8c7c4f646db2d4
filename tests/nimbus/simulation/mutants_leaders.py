"""Bugs of leaders: commands, schedules, transactions, takeovers, archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.domain import writes as w
from nimbus.domain.cluster import terms as records_of_terms
from nimbus.domain.pipelines.catalog import Skips
from nimbus.domain.runs.run import Places, RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.starts import places, upstream
from nimbus.engine import leader_term
from nimbus.engine.decision import Decision, NoDecision, ResignLeadership
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.probes import Probes
from nimbus.engine.rules import run_ends, run_starts, schedules, terms
from nimbus.engine.rules.commands import answers
from nimbus.engine.rules.commands import pipelines as pipeline_commands
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.state import State, runs
from nimbus.engine.state.attempts import PoolUse
from nimbus.engine.state.runs import Runs
from nimbus.engine.state.tasks import WaitingTasks
from nimbus.engine.work_queue import Instant
from nimbus.ports import Pruned, SlotTakenError, StaleStateError
from tests.nimbus.dict_store import DictTree
from tests.nimbus.simulation.mutant import mutant, replaced


def in_two(first: Callable[[w.Write], bool]) -> Callable[..., None]:
    """A `LeaderTerm._do` that writes some of a decision in a separate transaction, before the rest."""
    original = LeaderTerm._do

    def do(self: Any, key: Any, decision: Decision, now: Any) -> None:
        early = tuple(write for write in decision.writes if first(write))
        late = tuple(write for write in decision.writes if not first(write))
        if early and late and self._flush():
            transaction = self._store.begin()
            transaction.add(early)
            transaction.commit()
            decision = replace(decision, writes=late)
        original(self, key, decision, now)

    return do


@mutant
def command_consumed_before_it_is_done() -> Iterator[None]:
    """DS 13355: the command is removed first; a kill in between loses it."""
    with replaced(LeaderTerm, _do=in_two(lambda write: isinstance(write, w.ConsumeCommand))):
        yield


@mutant
def refusals_forgotten_before_they_are_stored() -> Iterator[None]:
    """If storage is unavailable, the user can never learn why a command was refused."""
    original = TreeLeaderStore.prune_outcomes

    def prune(self: Any, before: Any, most: int) -> Pruned:
        pruned = original(self, before, most)
        self.forget_outcomes([refusal.command for refusal in pruned.old])
        return pruned

    with replaced(TreeLeaderStore, prune_outcomes=prune):
        yield


@mutant
def command_done_before_it_is_consumed() -> Iterator[None]:
    """Azkaban 2108, DS 5917: the next leader finds the command in the queue and executes it again."""

    def consumed(*_args: Any, writes: Any = (), effects: Any = (), **_others: Any) -> Decision:
        return Decision(name="done", writes=writes, effects=effects)

    with replaced(answers, _consumed=consumed):
        yield


@mutant
def position_moved_apart_from_the_run() -> Iterator[None]:
    """AF 23520, Dagster 9623: a kill between the two loses a fire time."""
    with replaced(LeaderTerm, _do=in_two(lambda write: isinstance(write, w.PutPipeline))):
        yield


@mutant
def backfill_moves_apart_from_the_run() -> Iterator[None]:
    """DS 13346, AF 58752: a kill between the two loses a date."""
    with replaced(LeaderTerm, _do=in_two(lambda write: isinstance(write, w.PutBackfill))):
        yield


@mutant
def backfill_window_is_counted_by_one_leader() -> Iterator[None]:
    """AF 58752, 58935: runs that an earlier leader has started are not counted."""
    original = Runs.put

    def put_run(self: Any, run: Any, now: Any, slots: Any = MappingProxyType({})) -> None:
        original(self, run, now, slots)
        if self.read is not None and run.backfill is not None:
            self._of_backfill[run.backfill].discard(run.id)

    with replaced(Runs, put=put_run):
        yield


@mutant
def interval_noted_apart_from_the_end_of_its_run() -> Iterator[None]:
    """A kill between the two leaves an interval without its run."""
    with replaced(LeaderTerm, _do=in_two(lambda write: not isinstance(write, w.PutIntervals))):
        yield


@mutant
def run_started_before_the_position_moves() -> Iterator[None]:
    """Prefect 17281, 8880: the id does not depend on the fire time, so the next leader starts it again."""
    original = schedules._fired

    def fired(state: Any, *args: Any) -> Any:
        decision: Any = original(state, *args)
        return replace(decision, writes=tuple(x for x in decision.writes if isinstance(x, w.CreateRun)))

    with replaced(schedules, _fired=fired):
        yield


@mutant
def skipped_fires_are_not_counted() -> Iterator[None]:
    """Temporal 8087: skipped fire times are not visible."""
    with replaced(Skips, with_fires=lambda self, *_fires, **_more: self):
        yield


@mutant
def activation_fires_the_past() -> Iterator[None]:
    """AF 777, 41014: a schedule that was paused catches up on all missed fire times without a request."""
    original = pipeline_commands.activated

    def activated(record: Any, release: Any, spec: Any, now: Any) -> Any:
        new = original(record, release, spec, now)
        return replace(new, schedule_position=record.schedule_position or now)

    with replaced(pipeline_commands, activated=activated):
        yield


@mutant
def writes_are_not_fenced() -> Iterator[None]:
    """DS 16759: after a partition, two masters continue the same workflow."""
    with replaced(DictTree, check=lambda *_args: None):
        yield


@mutant
def silence_on_the_wall_clock() -> Iterator[None]:
    """Prefect 16459, DS 8110: after a step of the clock, live workers count as dead."""

    def now(self: Any) -> Instant:
        wall = self._clock.now()
        return Instant(wall, wall.timestamp())

    with replaced(LeaderTerm, _now=now):
        yield


@mutant
def lost_reply_is_taken_for_a_refusal() -> Iterator[None]:
    """Azkaban 2108: the answer is lost, so the write is repeated, without a check."""
    original = LeaderTerm.recover

    def recover(self: Any) -> None:
        if not self.state.catalog.pipelines:
            original(self)
        self._transaction, self._uncommitted = self._store.begin(), []
        self._store.doubtful = False

    with replaced(LeaderTerm, recover=recover):
        yield


@mutant
def refused_batch_is_forgotten() -> Iterator[None]:
    """AF 13542, 51569: after one refused transaction, tasks stay queued without end."""

    def flush(self: Any) -> bool:
        if not self._uncommitted:
            return True
        try:
            self._transaction.commit()
        except (SlotTakenError, StaleStateError):
            self._transaction, self._uncommitted = self._store.begin(), []
            return False
        self._committed(self._now())
        return True

    with replaced(LeaderTerm, _flush=flush):
        yield


@mutant
def abdication_is_remembered_and_not_read() -> Iterator[None]:
    """DS 17712: the action that must follow a write is lost with its reply."""
    original = LeaderTerm.read_on

    def read_on(self: Any) -> None:
        reading = not self.state.is_loaded
        original(self)
        if reading:
            self.state.leadership.put_abdication(None)

    with replaced(LeaderTerm, read_on=read_on):
        yield


@mutant
def abdication_is_obeyed_by_the_successor() -> Iterator[None]:
    """DS 3009: one request to step down ends one leader after the other."""

    def resign(state: Any) -> Any:
        asked = state.leadership.abdication
        if asked is None or state.leadership.resigning:
            return NoDecision()
        return Decision(name="resignation_started", effects=(ResignLeadership(asked.reason),))

    with replaced(terms, resign_as_recorded=resign):
        yield


@mutant
def term_before_is_left_open() -> Iterator[None]:
    """patroni 2009: a history that does not show who led until when."""
    original = terms.keep_term

    def keep(state: Any, now: Any) -> Any:
        answer = original(state, now)
        if isinstance(answer, Decision) and answer.name == "term_opened":
            return replace(answer, writes=answer.writes[-1:])
        return answer

    with replaced(terms, keep_term=keep):
        yield


@mutant
def term_is_recorded_when_the_state_is_read() -> Iterator[None]:
    """A leader that dies earlier has made decisions, but has no record."""
    original = terms.keep_term

    def keep(state: Any, now: Any) -> Any:
        return original(state, now) if state.is_loaded else NoDecision()

    with replaced(terms, keep_term=keep):
        yield


@mutant
def term_begins_by_the_clock_of_its_host_alone() -> Iterator[None]:
    """Clocks differ, so the history shows two leaders at once."""
    original = records_of_terms.begun

    def begun(leader: Any, epoch: int, before: Any, now: Any) -> Any:
        return replace(original(leader, epoch, before, now), began_at=now)

    with replaced(records_of_terms, begun=begun):
        yield


@mutant
def attempts_are_opened_before_all_is_read() -> Iterator[None]:
    """A new leader assigns slots before it has read which of them are in use."""
    original = leader_term.next_key

    def next_key(state: Any) -> Any:
        read, state.runs.read = state.runs.read, None
        try:
            return original(state)
        finally:
            state.runs.read = read

    with replaced(leader_term, next_key=next_key):
        yield


@mutant
def new_attempts_are_not_watched() -> Iterator[None]:
    """Prefect 21218, Dagster 23947: the end of a task is not noticed, because the watch comes later."""
    with replaced(LeaderTerm, _await_ends=lambda _self, _attempts: None):
        yield


@mutant
def adopted_runs_have_no_deadline() -> Iterator[None]:
    """DS 16980, 17817: timeouts never fire."""
    original = Runs.put

    def put(self: Any, run: Any, now: Any, *slots: Any) -> None:
        original(self, run if run.id in self.live else replace(run, deadline=None), now, *slots)

    with replaced(Runs, put=put):
        yield


@mutant
def archive_is_left_to_the_last_leader() -> Iterator[None]:
    """DS 13355: the work is marked as taken before it is done, and its owner dies."""
    original = Runs._put_finished

    def put(self: Any, run: Any) -> None:
        ended_here = run.id in self.live
        original(self, run)
        if not ended_here and not self.finished[run.id].archived:
            self.finished[run.id] = replace(self.finished[run.id], archiving=True)

    with replaced(Runs, _put_finished=put):
        yield


@mutant
def finished_run_is_dropped_early() -> Iterator[None]:
    """Luigi 96, Dagster 17868: a run is deleted before it is stored."""
    original = run_ends.retire_run

    def retire(state: Any, run_id: Any, now: Any) -> Any:
        finished = state.runs.finished.get(run_id)
        if finished is not None:
            state.runs.finished[run_id] = replace(finished, archived=True, archiving=False)
        return original(state, run_id, now)

    with replaced(run_ends, retire_run=retire):
        yield


@mutant
def finished_run_is_kept_for_ever() -> Iterator[None]:
    """AF 55768: memory grows with every finished run."""
    original = run_ends.retire_run

    def retire(state: Any, run_id: Any, now: Any) -> Any:
        answer = original(state, run_id, now)
        return run_ends.NoDecision() if isinstance(answer, Decision) and answer.writes else answer

    with replaced(run_ends, retire_run=retire):
        yield


@mutant
def attempts_that_last_are_not_looked_at() -> Iterator[None]:
    """A leader that only watches ENDs does not notice a claim without a heartbeat."""

    def forget(self: Any, now_s: float) -> None:
        self._young = {attempt: grown_s for attempt, grown_s in self._young.items() if grown_s > now_s}

    with replaced(LeaderTerm, _read_grown=forget):
        yield


@mutant
def limit_counts_running_runs_alone() -> Iterator[None]:
    """DS 17531: a run that is being stopped still writes, and the next one starts at the same time."""
    original = RunQueue.put

    def put(self: Any, run: Any, *needs: Any, **how: Any) -> None:
        if run.state is RunState.STOPPING:
            self.discard(run.id)
        else:
            original(self, run, *needs, **how)

    with replaced(RunQueue, put=put):
        yield


@mutant
def runs_that_only_wait_hold_places() -> Iterator[None]:
    """Sensors fill all places, and what they wait for never runs."""

    def all_places(_run: Any) -> Places:
        return Places.ALL

    with replaced(run_starts, needed=all_places), replaced(runs, needed=all_places):
        yield


@mutant
def parents_hold_the_places_of_their_trees() -> Iterator[None]:
    """A child run waits for a run that waits for the place of its parent."""
    original = places.needed

    def needed(run: Any) -> Places:
        return Places.ALL if run.tasks.count(TaskState.RUNNING) else original(run)

    with replaced(run_starts, needed=needed), replaced(runs, needed=needed):
        yield


@mutant
def child_runs_need_places_of_their_own() -> Iterator[None]:
    """A run waits for child runs that wait for its place."""
    original = RunQueue.has_room

    def has_room(self: Any, pipeline: Any, *, top: Any = None, **how: Any) -> bool:
        return original(self, pipeline, **how)

    with replaced(RunQueue, has_room=has_room):
        yield


@mutant
def wait_that_ends_takes_a_place_that_is_not_there() -> Iterator[None]:
    """The run goes on at once, and the limit is exceeded."""

    def with_places(_state: Any, decision: Decision) -> Decision:
        changed = (
            replace(one, run=replace(one.run, holds=places.needed(one.run)))
            if isinstance(one, w.PutRun) and one.run.state is RunState.RUNNING
            else one
            for one in decision.writes
        )
        return replace(decision, writes=tuple(changed))

    with replaced(run_starts, with_places=with_places):
        yield


@mutant
def queue_is_checked_at_creation_alone() -> Iterator[None]:
    """DS 9906, 10258: only the previous run wakes a queued run, which otherwise waits without end."""

    def next_queued(_self: Any) -> None:
        return None

    with replaced(State, next_queued=next_queued):
        yield


@mutant
def pool_counter_leaks() -> Iterator[None]:
    """DS 9910, 13726, 18338: the units that a task uses of its group are not released."""

    def closed(_self: Any, _attempt: Any) -> tuple[str, ...]:
        return ()

    with replaced(PoolUse, closed=closed):
        yield


@mutant
def waits_of_the_leader_before_are_forgotten() -> Iterator[None]:
    """DS 3973, AF 268: a failover loses the time limit of a waiting task, which waits without end."""
    original = Runs.put

    def put(self: Any, *run: Any) -> None:
        known = {"put_wait": lambda *_args, **_how: None} if self.read is not None else {}
        with replaced(WaitingTasks, **known):
            original(self, *run)

    with replaced(Runs, put=put):
        yield


@mutant
def data_is_looked_at_once() -> Iterator[None]:
    """DS 14149: a check is not repeated after an error, so its task waits without end."""
    original = Probes.seen

    def seen(self: Any, probe: Any, found: Any, now: Any) -> Any:
        return original(self, probe, found, now) if found.there else []

    with replaced(Probes, seen=seen):
        yield


@mutant
def one_thing_that_is_there_is_enough() -> Iterator[None]:
    """DS 15229: a wait for several things ends with the first, or with none."""
    with replaced(Probes, missing=lambda *_args: []):
        yield


@mutant
def ends_of_others_are_not_heard() -> Iterator[None]:
    """DS 16285, 3973: the condition of a waiting task is met, but it still waits, without another check."""
    with replaced(WaitingTasks, enqueue_awaiting=lambda *_args: None):
        yield


@mutant
def any_run_of_the_other_pipeline_is_enough() -> Iterator[None]:
    """DS 1336, 5979, AF 1060: a run for another date, or for a part of it, satisfies a dependency."""
    original = upstream.gaps

    def gaps(wanted: Any, covered: Any) -> Any:
        found = tuple(covered)
        return () if found else original(wanted, found)

    with replaced(upstream, gaps=gaps):
        yield
