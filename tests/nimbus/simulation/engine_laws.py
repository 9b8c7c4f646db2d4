"""The laws of a leader's memory: it equals ZooKeeper's content, and no key is forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.data.reads import to_pin
from nimbus.domain.ids import AttemptId, CommandId, WorkerId
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.child_runs import is_under_way
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.run import Places, RunState
from nimbus.domain.starts.admission import by_rank, held_behind
from nimbus.domain.starts.timing import not_before
from nimbus.domain.starts.waits import DataProbe, probes_of
from nimbus.engine.decision import Decision, NoDecision, ProbeData
from nimbus.engine.rules import ask
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key, Kind
from nimbus.ports import DefinitionNotHereError, StoreUnavailableError
from tests.nimbus.dict_cluster import World as Records
from tests.nimbus.pool_holders import pool_holders
from tests.nimbus.simulation import explained, places
from tests.nimbus.simulation.catalog import TARGET
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Check a leader that has read everything, decided everything, and waits."""
    term, ledger = scheduler.engine.term, scheduler.world.ledger
    scheduler.world.rests += 1
    state, now_s = term.state, scheduler.clock.elapsed_s()
    young = {attempt for attempt, grown_s in term._young.items() if grown_s > now_s}
    hold(
        Law.ABDICATION_DONE,
        state.epoch not in ledger.abdicated,
        scheduler.name,
        "rests in epoch",
        state.epoch,
    )
    passing = (DefinitionNotHereError.__name__, StoreUnavailableError.__name__)
    parked = {key: why for key, why in state.work.parked.items() if not why.startswith(passing)}
    hold(Law.NEVER_FAILS, not parked, "parked:", parked)
    _knows_all(state, scheduler.world.zookeeper.world, young, told=not scheduler.engine._inbox.empty())
    begun = {
        name
        for name in state.catalog.pipelines
        if (key := Key("pipeline", name)) in state.builds.under_way or key in state.work.parked
    }
    held = {name for name in state.catalog.pipelines if ledger.is_held(name)}
    ledger.schedules.check_none_missed(scheduler.clock.now(), begun | held)
    now = scheduler.clock.now()
    over = [name for name, one in ledger.settings.holds.items() if one.until is not None and one.until <= now]
    hold(Law.HELD, not over, "lasts longer than it may:", over)
    check_indexes(state)
    _nothing_forgotten(state, Instant(scheduler.clock.now(), now_s))
    if scheduler.engine._inbox.empty():
        _probes_go_on(state, {job.probe for job, _ in scheduler.jobs if isinstance(job, ProbeData)})
    explained.check(scheduler)


def _probes_go_on(state: State, under_way: Set[DataProbe]) -> None:
    """Check that the leader has planned checks of everything that a task waits for."""
    for run in state.runs.live.values():
        for name, task in run.tasks.items():
            if not probes_of(task.spec.waits_for, task.spec.args) or not lifecycle.is_ready(run, task):
                continue
            missing = state.tasks.probes._missing[Key("wait", run.id, name)]
            idle = {probe for probe in missing if state.tasks.probes._watched[probe].due_s is None}
            hold(Law.NOTHING_FORGOTTEN, missing, run.id, name, "waits for nothing")
            hold(Law.NOTHING_FORGOTTEN, idle <= under_way, "no check is planned of", idle - under_way)


def _knows_all(state: State, found: Records, young: Set[AttemptId], *, told: bool) -> None:
    """Its own records must be exact; records of others, too, unless the change is still in the inbox.

    Args:
        state: The leader's state.
        found: The content of ZooKeeper.
        young: Attempts of which the leader only has to know END.
        told: Whether its inbox has news.
    """
    live = {key: run for key, run in found.runs.items() if not run.state.is_final}
    hold(Law.KNOWS_ALL, state.runs.live == live, "runs:", list(state.runs.live), list(live))
    hold(Law.KNOWS_ALL, state.runs.finished.keys() == found.runs.keys() - live.keys(), "finished runs")
    hold(Law.KNOWS_ALL, state.catalog.pipelines == found.pipelines, "pipelines")
    hold(Law.KNOWS_ALL, state.catalog.intervals == found.intervals, "intervals")
    hold(Law.KNOWS_ALL, state.catalog.datasets == found.datasets, "datasets")
    hold(Law.KNOWS_ALL, state.catalog.due == found.due, "due:", state.catalog.due, found.due)
    hold(Law.KNOWS_ALL, state.catalog.backfills == found.backfills, "backfills")
    if not told:
        hold(Law.KNOWS_ALL, found.commands.keys() <= state.commands.waiting.keys(), "commands")
        hold(Law.KNOWS_ALL, state.attempts.workers.registered.keys() == found.workers.keys(), "workers")
        seen = {attempt: found.slots.get(attempt) for attempt in state.attempts.slots}
        unread = {attempt for attempt in young & seen.keys() if (slots := seen[attempt]) and not slots.end}
        seen |= dict.fromkeys(unread, Slots())
        known = {attempt: _read_by_leader(slots) for attempt, slots in state.attempts.slots.items()}
        there = {attempt: slots and _read_by_leader(slots) for attempt, slots in seen.items()}
        hold(Law.KNOWS_ALL, known == there, "slots:", known, "are", there)


def _read_by_leader(slots: Slots) -> Slots:
    """What a leader reads: no progress, and after END no heartbeat, which lasts as long as its session."""
    is_open = slots.end is None
    return (
        replace(slots, progress={}, checkpoint=None) if is_open else Slots(claim=slots.claim, end=slots.end)
    )


def check_indexes(state: State) -> None:
    """Incrementally updated indexes equal a full computation."""
    opened: dict[AttemptId, WorkerId] = {}
    for run in state.runs.live.values():
        hold(Law.INDEXES, not run.state.is_final, run.id)
        for name, task in run.tasks.items():
            if task.open_attempt is not None:
                opened[AttemptId(run.id, name, task.tried)] = task.attempts[-1].ordered_to
            met = all(run.tasks[need].state.is_final for need in task.spec.needs)
            hold(Law.INDEXES, state.runs._needs[run.id].met(name) == met, run.id, name, "needs")
            key = run.id, name
            if Key("run", run.id) in state.work.parked:
                continue
            queued = key in state.ready or Key("rendering", *key) in state.tasks.renderings.under_way
            queued |= key in state.runs.left and lifecycle.is_ready(run, task)
            queued |= bool(to_pin(run, name)) and not task.spec.children and lifecycle.is_ready(run, task)
            timed = is_timed(state, Key("task", *key))
            if task.spec.children is not None:
                queued = lifecycle.is_ready(run, task) and Key("children", *key) in state.work.parked
                timed |= is_timed(state, Key("children", *key))  # the clock went back
            ready = task.spec.kind.uses_worker and lifecycle.is_ready(run, task)
            hold(Law.INDEXES, (queued or timed) == ready, key, queued, timed)
    hold(Law.INDEXES, state.attempts.slots.keys() == opened.keys(), "open:", sorted(map(str, opened)))
    at_target = sum(state.runs.live[a.run].tasks[a.task].spec.spark_place is not None for a in opened)
    hold(Law.INDEXES, state.capacity().open_at(TARGET) == at_target, "at target:", at_target)
    busy = busy_on(state)
    hold(Law.INDEXES, busy == Counter(opened.values()), "busy:", busy)
    runs = state.runs.live
    here = Counter(on for at, on in opened.items() if not runs[at.run].tasks[at.task].spec.runs_in_cluster)
    free = by_rank(state.attempts.workers.registered.values(), here, state.attempts.workers.refusals)
    hold(Law.INDEXES, list(state.attempts.workers.free) == free, "free:", free)
    _check_silence(state)
    states = Counter(run.state for run in state.runs.live.values())
    tasks = Counter(task.state for run in state.runs.live.values() for task in run.tasks.values())
    hold(
        Law.INDEXES,
        (+state.runs.counts.runs, +state.runs.counts.tasks) == (states, tasks),
        "live:",
        states,
        tasks,
    )
    lines = list(state.ready.lines())
    hold(Law.INDEXES, sum(line.size for line in lines) == len(state.ready), "ready:", lines)
    hold(Law.INDEXES, all(key in state.ready for line in lines for key in line[:2]), "lines:", lines)
    alerts = Counter(alert.state for alert in state.alerts.outbox._alerts.values())
    hold(Law.INDEXES, +state.alerts.outbox.counts == alerts, "alerts:", alerts)
    runs_of = defaultdict(set)
    for run in state.runs.live.values():
        runs_of[run.pipeline].add(run.id)
    hold(Law.INDEXES, {name: ids for name, ids in state.runs._of.items() if ids} == runs_of, "runs of")
    _check_lines(state)
    used = Counter[str]()
    for attempt in opened:
        used.update(state.runs.live[attempt.run].tasks[attempt.task].spec.pools)
    hold(Law.INDEXES, +state.attempts.pools._used == +used, "pools:", used)
    in_queue = {run.id for run in state.runs.live.values() if run.state is RunState.QUEUED}
    waiting = {key for key in in_queue if state.runs.live[key].paused is None}
    hold(Law.INDEXES, state.queue._ranks.keys() == waiting, "queued:", waiting)
    live = state.runs.live.values()
    hold(Law.INDEXES, places.in_cluster(live) == state.queue._trees.keys(), state.queue._trees)
    for run in live:
        if Key("run", run.id) in state.work.parked:
            continue
        held = run.holds is not Places.NONE, run.holds is Places.ALL
        hold(Law.INDEXES, held == (places.in_pipeline(run), places.works(run)), run.id, run.holds)
        hold(Law.INDEXES, held[0] == (run.id in state.queue._holds), run.id, "in its pipeline")
        late = places.is_overdue(run, live, state.catalog.pipelines, state.settings.holds)
        hold(Law.RUNS_WHEN_IT_CAN, not late, run.id, "is queued")


def _check_silence(state: State) -> None:
    for attempt, slots in state.attempts.slots.items():
        found = state.attempts.find(attempt)
        assert found is not None
        is_held = slots.claim is not None or slots.submitted is not None
        alive = slots.has_heartbeat if is_held else found[1].worker in state.attempts.workers.registered
        hold(Law.INDEXES, alive != (attempt in state.attempts.silent), attempt, "silence", alive)
    hold(Law.INDEXES, state.attempts.silent.keys() <= state.attempts.slots.keys(), "silent, and not open")


def _check_lines(state: State) -> None:
    """A command whose run could not be built at first is behind later commands."""
    lines: defaultdict[str, dict[CommandId, None]] = defaultdict(dict)
    for key, queued in state.commands.waiting.items():
        if Key("command", key) in state.work.parked:
            continue
        waits = getattr(queued.command, "rerun_of", None)
        if (pipeline := getattr(queued.command, "pipeline", "")) and not waits:
            lines[pipeline][key] = None
        if run := getattr(queued.command, "run_id", ""):
            lines[f"run {run}"][key] = None
        if dataset := getattr(queued.command, "dataset", ""):
            lines[f"dataset {dataset}"][key] = None
    listed = {name: list(line) for name, line in state.commands.lines._lines.items()}
    hold(Law.INDEXES, {name: set(line) for name, line in lines.items()} == _sets(listed), "lines")
    late = {key.command for key, found in state.builds.results.items() if found.result is None}
    for name, line in lines.items():
        if late.isdisjoint(line):
            hold(Law.INDEXES, list(line) == listed[name], "line", name)


def is_timed(state: State, key: Key) -> bool:
    """True when the key has a timer."""
    return key in state.work._at or key in state.work._after


def busy_on(state: State) -> dict[WorkerId, int]:
    """Number of open attempts of each worker that has any."""
    return {worker: len(attempts) for worker, attempts in state.attempts.workers._open_on.items() if attempts}


def _sets(listed: dict[str, list[CommandId]]) -> dict[str, set[CommandId]]:
    return {key: set(line) for key, line in listed.items()}


def _nothing_forgotten(state: State, now: Instant) -> None:
    for key in _keys(state, now):
        if key.owner in state.work.parked:
            continue
        answer = ask(state, key, now)
        if key.kind == "attempt" and is_timed(state, key):
            continue  # a grace that began before the wall clock stepped ends by elapsed time
        if key.kind == "finished" and is_timed(state, key):
            continue  # its parent has just taken in its end: it is removed a minute later
        if key in state.builds.under_way:
            continue  # it needs no build any more: the end of the build puts it in the work queue
        if key.kind == "pins" and is_timed(state, key):
            continue  # storage did not answer: it is asked again after a pause
        if key.kind == "task" and _all_back_off(state, now):
            continue  # because the wall clock stepped back: the next check of the workers computes it again
        decided = isinstance(answer, Decision)
        if decided and key.kind == "task" and _is_held_behind(state, key, now):
            continue
        hold(Law.NOTHING_FORGOTTEN, isinstance(answer, NoDecision), key, "was not asked about:", answer)
        if isinstance(answer, NoDecision) and (answer.at is not None or answer.after_s is not None):
            hold(Law.NOTHING_FORGOTTEN, is_timed(state, key), key, "has no timer for", answer)


def _is_held_behind(state: State, key: Key, now: Instant) -> bool:
    """True if a more urgent task waits at a pool of a task."""
    ready = [
        (run, task)
        for run in state.runs.live.values()
        if Key("run", run.id) not in state.work.parked
        for task in run.tasks.values()
        if (run.id, task.spec.name) in state.ready  # also if the clock stepped back since its pause ended
        or (lifecycle.is_ready(run, task) and (not_before(run, task) or now.wall) <= now.wall)
    ]
    run = state.runs.live[key.run]
    capacity = replace(state.capacity(), holder=pool_holders(ready, state.capacity()))
    return held_behind(run, run.tasks[key.task], capacity) is not None


def _all_back_off(state: State, now: Instant) -> bool:
    known = (
        state.attempts.workers.refusals.get(worker.id)
        for worker in state.attempts.workers.registered.values()
        if not worker.draining
    )
    return all(found is not None and found.until > now.wall for found in known)


def _keys(state: State, now: Instant) -> Iterator[Key]:
    yield from map(Key.of_attempt, state.attempts.slots)
    yield from (Key("run", name) for name in state.runs.live)
    yield from (Key("queue", key) for key in state.queue._ranks)
    yield from (Key("command", name) for name in state.commands.waiting)
    yield from (Key("pipeline", name) for name in state.catalog.pipelines)
    yield from (Key("backfill", name) for name in state.catalog.backfills)
    yield from (Key("finished", name) for name in state.runs.finished)
    yield from (Key("deadline", name) for name in state.catalog.pipelines)
    yield from (Key("hold", name) for name in state.settings.holds)
    for run in state.runs.live.values():
        if run.expect is None:  # computed from the data that are known when the run is examined
            yield Key("late", run.id)
        for name, task in run.tasks.items():
            if task.spec.warn_after is not None:
                yield Key("late", run.id, name)
            if task.children is not None and is_under_way(task):
                yield Key("children", run.id, name)
                yield from (Key("child", run.id, name, n) for n in task.children.having(ItemState.OPEN))
            if not task.spec.kind.uses_worker:
                yield Key("wait", run.id, name)
            elif lifecycle.is_ready(run, task) and (not_before(run, task) or now.wall) <= now.wall:
                rendered = (
                    not task.spec.reads or Key("rendering", run.id, name) in state.tasks.renderings.results
                )
                kind: Kind = "task" if task.spec.children is None else "children"
                kind = "pins" if to_pin(run, name) else kind
                yield Key(kind if rendered else "rendering", run.id, name)
