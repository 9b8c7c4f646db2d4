"""Finds runs: in the command queue, in ZooKeeper while they live and for a while after, then in history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from heapq import nlargest

import structlog

from nimbus.api import views
from nimbus.api.explain import Surroundings
from nimbus.api.explain_queue import QueueView
from nimbus.api.models_runs import RequestedRunModel
from nimbus.api.problems import NotFoundError
from nimbus.api.services import ApiServices
from nimbus.api.submitting import command_model
from nimbus.domain.admission import Capacity, by_rank, need_of, pool_holders, target_slots
from nimbus.domain.commands import CommandOutcome, StartRun
from nimbus.domain.earliest import not_before
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import CommandId, PipelineName, RunId
from nimbus.domain.lifecycle import is_ready
from nimbus.domain.run import ListedRun, Run, RunState, TaskRun
from nimbus.domain.upstream import Upstream
from nimbus.domain.waits import LookReport

_log = structlog.stdlib.get_logger(__name__)

MAX_RUNS = 500
"""In one answer."""
_RECENT = 20
"""Runs in history that are looked at for the last success."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that a leader has started."""

    run: Run
    archived: bool
    """It came from history."""


def look_for_run(services: ApiServices, run_id: str) -> FoundRun | RequestedRunModel:
    """A run; else the command that asks for it, or its refusal.

    Raises:
        NotFoundError: nothing of it is known.
    """
    wanted = RunId(run_id)
    live = services.reader.run(wanted)
    if live is None:
        for queued in services.reader.commands():
            if isinstance(queued.command, StartRun) and queued.command.run_id == wanted:
                return _pending(services, queued.id, queued.command)
        live = services.reader.run(wanted)  # started between the two looks
    if live is not None:
        return FoundRun(live, archived=False)
    old = services.history.read(wanted)
    if old is not None:
        return FoundRun(old, archived=True)
    refusal = services.commands.refused_start(wanted)
    if refusal is not None:
        return _refused(wanted, refusal)
    raise NotFoundError("unknown_run", f"run {run_id} is neither live nor in history: see `nimbus run list`.")


def _pending(services: ApiServices, command_id: CommandId, start: StartRun) -> RequestedRunModel:
    earlier = None if start.rerun_of is None else services.reader.run(start.rerun_of)
    waits = earlier is not None and not earlier.state.is_final
    return RequestedRunModel(
        id=start.run_id,
        pipeline=start.pipeline,
        state="pending",
        reason=f"waits for the end of run {start.rerun_of}" if waits else "",
        command=command_model(command_id, None, run_id=start.run_id),
    )


def _refused(run_id: RunId, refusal: CommandOutcome) -> RequestedRunModel:
    return RequestedRunModel(
        id=run_id,
        pipeline=None,
        state="refused",
        reason=refusal.message,
        command=command_model(refusal.command, refusal, run_id=run_id),
    )


def find_run(services: ApiServices, run_id: str) -> Run:
    """A run that a leader has started.

    Raises:
        NotFoundError: there is none; the code says whether it is pending, was refused, or is unknown.
    """
    found = look_for_run(services, run_id)
    if isinstance(found, FoundRun):
        return found.run
    why = found.reason or f"command {found.command.command_id} waits for a leader's decision"
    raise NotFoundError(f"run_{found.state}", f"run {run_id} is not started: {why}")


def refuse_used_id(services: ApiServices, run_id: str) -> None:
    """A run's id names its attempts and its output folders for good, so it serves once.

    The leader sees to it for runs in ZooKeeper; this is for those that have moved to history. While storage
    does not answer, it cannot be checked, and starting runs goes on.

    Raises:
        RefusedError: history has a run of this id.
    """
    wanted = RunId(run_id)
    if services.reader.run(wanted) is not None:
        return  # asking twice starts one run: the leader says so
    try:
        used = services.history.read(wanted) is not None
    except NimbusError as exc:
        if not exc.retryable:
            raise
        _log.warning("history_unavailable", error=str(exc))
        return
    if used:
        raise RefusedError(
            "run_exists", f"run {run_id} was started, and finished, before. Choose another id."
        )


def list_runs(
    services: ApiServices, *, pipeline: str | None, state: RunState | None, limit: int
) -> tuple[list[tuple[Run, bool]], bool]:
    """Runs, newest first, each with whether it came from history; and whether history answered.

    Live runs are listed even when history's storage is down: an outage there hides the past, not the present.
    """
    found = services.reader.run_list()
    past, complete = _past_runs(services, pipeline, state, limit)
    known: dict[str, ListedRun | Run] = {**past, **found}
    fitting = (
        run for run in known.values() if pipeline in (None, run.pipeline) and state in (None, run.state)
    )
    newest = [run.id for run in nlargest(limit, fitting, key=lambda run: (run.created_at, run.id))]
    live = services.reader.runs(run for run in newest if run in found)
    rows = ((live.get(run) or past.get(run), run not in live) for run in newest)
    return [(run, archived) for run, archived in rows if run is not None], complete


def last_success(services: ApiServices, run: Run) -> Run | None:
    """The last run of its pipeline that succeeded, of those created before it.

    Looks at what is in ZooKeeper and at the newest runs in history.
    """
    listed = services.reader.run_list().values()
    near = [one for one in listed if one.pipeline == run.pipeline and one.state is RunState.SUCCEEDED]
    before = (one for one in near if one.created_at < run.created_at)
    newest = nlargest(1, before, key=lambda one: (one.created_at, one.id))
    found = list(services.reader.runs(one.id for one in newest).values())
    found += services.history.recent(run.pipeline, _RECENT)
    fitting = (one for one in found if one.state is RunState.SUCCEEDED and one.created_at < run.created_at)
    return max(fitting, key=lambda one: (one.created_at, one.id), default=None)


def _past_runs(
    services: ApiServices, pipeline: str | None, state: RunState | None, limit: int
) -> tuple[dict[str, Run], bool]:
    """Runs in history that a list may need, and whether history answered."""
    if state is not None and not state.is_final:
        return {}, True
    name = PipelineName(pipeline) if pipeline is not None else None
    try:
        # A state is filtered by the caller, so more must be read than is wanted.
        return {run.id: run for run in services.history.recent(name, MAX_RUNS if state else limit)}, True
    except NimbusError as exc:
        if not exc.retryable:
            raise
        _log.warning("history_unavailable", error=str(exc))
        return {}, False


def surroundings(services: ApiServices) -> Surroundings:
    """What explanations of a live run rest on."""
    leader = services.health.leader()
    queue_of = cache(partial(queue_view, services))
    return Surroundings(
        now=services.clock.now(),
        leader=leader.id if leader else None,
        capacity=cache(partial(_capacity, services)),
        looks=cache(partial(_looks, services)),
        upstream=cache(partial(_upstream, services)),
        queue=lambda run: queue_of(run.pipeline),
        run=services.reader.run,
    )


def _upstream(services: ApiServices, name: PipelineName) -> Upstream:
    listed = services.reader.run_list().values()
    live = [run.id for run in listed if run.pipeline == name and not run.state.is_final]
    runs = tuple(services.reader.runs(live).values())
    return Upstream(services.reader.intervals(name), runs, services.reader.pipeline(name) is not None)


def _looks(services: ApiServices) -> Mapping[str, LookReport]:
    return next((one.looks for one in services.reader.schedulers() if one.epoch is not None), {})


def queue_view(services: ApiServices, pipeline: PipelineName) -> QueueView:
    """What a queued run of a pipeline waits for."""
    record = services.reader.pipeline(pipeline)
    concurrency = None if record is None else record.profile.concurrency
    of_all = services.max_running is not None
    live = (
        listed.id
        for listed in services.reader.run_list().values()
        if not listed.state.is_final and (of_all or listed.pipeline == pipeline)
    )
    return QueueView(
        live=services.reader.runs(live).values(),
        limit=None if concurrency is None else concurrency.limit,
        max_running=services.max_running,
    )


def _capacity(services: ApiServices) -> Capacity:
    reader = services.reader
    settings, takers = reader.settings(), cache(partial(takers_of_pools, services))
    workers, refused = settings.applied_to(reader.workers()), views.refusals(reader.schedulers())
    busy = views.busy_slots(reader.busy(worker.id for worker in workers), workers)
    used = cache(lambda: pool_use(takers()))
    capacity = Capacity(
        workers=workers,
        free=by_rank(workers, busy, refused),
        submitting=[worker for worker in workers if not (worker.draining or worker.lacks)],
        refusals=refused,
        target_slots=target_slots(workers),
        open_at=cache(partial(_open_at, services)),
        pools=settings.pools,
        used=lambda pool: used()[pool],
        holders=cache(lambda: pool_holders(waiting_for_pools(takers(), services.clock.now()), capacity)),
    )
    return capacity


def takers_of_pools(services: ApiServices) -> tuple[Run, ...]:
    """Live runs with tasks that take of pools. Reads all live runs."""
    live = (run.id for run in services.reader.run_list().values() if not run.state.is_final)
    runs = services.reader.runs(live).values()
    return tuple(run for run in runs if any(task.spec.pools for task in run.tasks.in_order()))


def pool_use(runs: Iterable[Run]) -> Counter[str]:
    """What open attempts take of each pool, counted as the leader does."""
    used: Counter[str] = Counter()
    for run in runs:
        for task in run.tasks.in_order():
            if task.open_attempt is not None:
                used.update(task.spec.pools)
    return used


def waiting_for_pools(runs: Iterable[Run], now: datetime) -> list[tuple[Run, TaskRun]]:
    """Ready tasks that take of pools."""
    return [
        (run, task)
        for run in runs
        for task in run.tasks.in_order()
        if task.spec.pools and is_ready(run, task) and (not_before(run, task) or now) <= now
    ]


def _open_at(services: ApiServices, target: str) -> int:
    """Open attempts of a target, counted as the leader does: in live runs. Only tasks that have one ask."""
    live = (run.id for run in services.reader.run_list().values() if not run.state.is_final)
    return sum(
        task.open_attempt is not None and need_of(task.spec).target == target
        for run in services.reader.runs(live).values()
        for task in run.tasks.in_order()
    )
