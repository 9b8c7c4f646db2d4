"""What the leader reports every few seconds: counts for gauges, and limits for explanations. Pure.

The cost depends on the number of lines, workers and pipelines, which are few or bounded, not on live runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice

from nimbus.domain.cluster.alerts import AlertState
from nimbus.domain.cluster.schedulers import (
    LeaderReport,
    LimitUse,
    ParkedKey,
    TeamUse,
    WaitingTask,
    WantedSlots,
)
from nimbus.domain.ids import PipelineName
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.starts.admission import ENDED_BY_A_WORKER, Wait, WaitReason, admit, need_of, room_at_gates
from nimbus.domain.starts.timing import waits_since
from nimbus.engine.ready import WaitingLine
from nimbus.engine.rules.schedules import pending
from nimbus.engine.state import State
from nimbus.engine.workers import ALL_SLOTS
from nimbus.telemetry.engine import ClusterCounts

ASSIGNABLE = "assignable"
"""Label of ready tasks for which there is a worker: they start next."""
NOT_ASKED = "not_asked"
"""Label of ready tasks in lines beyond MAX_LINES."""
MAX_LINES = 100
"""Limit of lines that are examined: each run with `max_parallel_tasks` has its own lines."""
MAX_FIRES = 200
"""Limit of pipelines with a due schedule that are examined; others are about as late."""
_REASONS = (*WaitReason, ASSIGNABLE, NOT_ASKED)
ALERT = "alert"
_KEPT = (AlertState.WAITING, AlertState.SENDING, AlertState.NOT_DELIVERED)


def standing(state: State, now: datetime) -> ClusterCounts:
    """The counts. Admission is computed for the first task of each line: the others wait for the same."""
    ready, waits_s, wanted = _ready(state, now)
    oldest = state.alerts.outbox.oldest()
    return ClusterCounts(
        runs={key.value: state.runs.counts.runs[key] for key in RunState if not key.is_final},
        tasks={key.value: state.runs.counts.tasks[key] for key in TaskState},
        ready_tasks={reason: ready[reason] for reason in _REASONS},
        longest_waits_s={reason: waits_s.get(reason, 0.0) for reason in _REASONS},
        slots=sum(worker.slots for worker in state.attempts.workers.registered.values()),
        open_attempts=len(state.attempts.slots),
        commands=len(state.commands.waiting),
        quarantined=len(state.catalog.quarantined),
        parked=len(state.work.parked),
        schedule_lag_s=max(_lags_s(state, now), default=0.0),
        last_success=dict(state.runs.last_success),
        outbox={(ALERT, key.value): state.alerts.outbox.counts[key] for key in _KEPT},
        wanted={want: _since_s(want.since, now) for want in wanted},
        outbox_oldest_s=0.0 if oldest is None else _since_s(oldest, now),
    )


def _ready(state: State, now: datetime) -> tuple[Counter[str], dict[str, float], tuple[WantedSlots, ...]]:
    """Numbers of ready tasks by reason of the wait; how long the oldest of each is ready; slots they lack."""
    capacity, counts, waits_s = state.capacity(), Counter[str](), dict[str, float]()
    wanted = dict[tuple[tuple[str, ...], str], WantedSlots]()
    for line in islice(state.ready.lines(), MAX_LINES):
        run_id, name = line.first
        run = state.runs.live[run_id]
        answer, since = admit(run, run.tasks[name], capacity, now), _ready_since(state, line)
        reason = answer.reason.value if isinstance(answer, Wait) else ASSIGNABLE
        counts[reason] += line.size
        waits_s[reason] = max(waits_s.get(reason, 0.0), _since_s(since, now))
        if isinstance(answer, Wait) and answer.reason in ENDED_BY_A_WORKER:
            need, room = need_of(run.tasks[name].spec), room_at_gates(run, run.tasks[name], capacity)
            key = tuple(sorted(need.labels)), need.target or ""
            known = wanted.get(key, WantedSlots(labels=key[0], target=key[1], slots=0, since=since))
            slots = 0 if need.in_cluster else line.size if room is None else min(line.size, room)
            wanted[key] = replace(known, slots=known.slots + slots, since=min(known.since, since))
    counts[NOT_ASKED] = len(state.ready) - counts.total()
    lacking = (replace(want, slots=max(1, want.slots)) for want in wanted.values())
    return counts, waits_s, tuple(islice(lacking, MAX_NAMED))


def _ready_since(state: State, line: WaitingLine) -> datetime:
    run_id, name = line.oldest
    run = state.runs.live[run_id]
    task = run.tasks[name]
    return task.retry_at or waits_since(run, task)


def _lags_s(state: State, now: datetime) -> Iterator[float]:
    """Delays of pipelines whose schedule may be due. The others have a timer for their next fire time.

    A schedule whose position is ahead of the clock is silent until then, which counts as a delay.
    """
    for name, record in state.catalog.pipelines.items():
        if record.is_scheduled and name not in state.catalog.quarantined:
            yield _since_s(now, max(now, record.furthest or now))
    keys = chain(
        state.work.now("pipeline"),
        (key for key in state.builds.under_way if key.kind == "pipeline"),
        (key for key in state.work.parked if key.kind == "pipeline"),
    )
    for key in islice(keys, MAX_FIRES):
        due = _due(state, key.pipeline)
        if due is not None:
            yield _since_s(due, now)


def _due(state: State, name: PipelineName) -> datetime | None:
    """The first unhandled fire time of a pipeline. It may be in the future."""
    record = state.catalog.pipelines.get(name)
    if record is None or not record.is_scheduled or name in state.catalog.quarantined:
        return None
    try:
        return min((due for due, _ in pending(record)), default=None)
    except Exception:  # noqa: BLE001 - such as an unknown time zone: the rule of schedules parks the key
        return None


def _since_s(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())


MAX_NAMED = 50
"""Limit of named tasks and keys: the report is part of a registration."""
MAX_TEAMS = 100
LONGEST_WHY = 200
"""Limit of a reason, in characters."""


def report(state: State, wanted: tuple[WantedSlots, ...] | None = None) -> LeaderReport:
    """The report: the use of limits, the keys that are parked, and the slots that are wanted."""
    pools = {pool: used for pool in state.settings.pools if (used := state.attempts.pools.used(pool))}
    waiting = {pool: count for pool in state.settings.pools if (count := state.ready.waiting_at_pool(pool))}
    held = ((pool, state.ready.first_at_pool(pool)) for pool in state.settings.pools)
    named = ((pool, WaitingTask(*task)) for pool, task in held if task is not None)
    return LeaderReport(
        limits=LimitUse(
            pools=pools,
            waiting=waiting,
            targets=state.attempts.workers.open_at_targets(),
            teams=dict(islice(_teams(state), MAX_TEAMS)),
            held_for=dict(islice(named, MAX_NAMED)),
        ),
        parked=tuple(
            ParkedKey(kind=key.kind, id=key.name, task=key.task, why=why[:LONGEST_WHY])
            for key, why in islice(state.work.parked.items(), MAX_NAMED)
        ),
        parked_count=len(state.work.parked),
        wanted=wanted,
    )


def _teams(state: State) -> Iterator[tuple[str, TeamUse]]:
    slots, waiting = state.attempts.workers.held(ALL_SLOTS).held, state.ready.of_team
    pools, queued = state.attempts.pools.by_teams(), state.queue.queued_teams()
    for team in sorted({*slots, *waiting, *pools, *queued, *state.queue.teams()}):
        use = TeamUse(
            slots=slots[team],
            runs=state.queue.running(team),
            waiting=waiting[team],
            queued=team in queued,
            pools=pools.get(team, {}),
        )
        if use != TeamUse():
            yield team, use
