"""Reads the facts that explanations of runs, tasks and queues need. Any thread of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TypeVar

from nimbus.api import views
from nimbus.api.explain.data import DatasetView
from nimbus.api.explain.queue import QueueView
from nimbus.api.explain.task import ClusterFacts
from nimbus.api.runs.lookup import live_runs
from nimbus.api.services import ApiServices
from nimbus.domain.cluster.schedulers import SchedulerInfo, WaitingTask, leader_report
from nimbus.domain.cluster.settings import why_held
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.starts.admission import Capacity, PoolHolder, by_rank, holder_of, target_slots
from nimbus.domain.starts.upstream import Upstream
from nimbus.domain.starts.waits import LastProbe

T = TypeVar("T")


def cluster_facts(services: ApiServices) -> ClusterFacts:
    """The facts for explanations of a live run."""
    leader, schedulers = services.health.leader(), cache(services.reader.schedulers)
    queue_of = cache(lambda name: queue_view(services, schedulers, name, services.reader.pipeline(name)))
    return ClusterFacts(
        now=services.clock.now(),
        leader=leader.id if leader else None,
        capacity=cache(lambda: _capacity(services, schedulers)),
        schedulers=schedulers,
        probes=cache(lambda: _probes(schedulers())),
        upstream=cache(partial(_upstream, services)),
        datasets=cache(partial(dataset_view, services)),
        queue=lambda run: queue_of(run.pipeline),
        run=services.reader.run,
        timings=services.timings,
        parked=cache(lambda: leader_report(schedulers()).parked if leader else ()),
    )


Schedulers = Callable[[], Collection[SchedulerInfo]]


def share_words(services: ApiServices, schedulers: Schedulers, pipeline: PipelineName, of: str) -> str:
    """What the team of a pipeline has, as the end of an explanation; empty: no other team wants anything.

    `of`: `slots`, `runs`, or the name of a pool after `pool `.
    """
    teams = leader_report(schedulers()).limits.teams
    if len(teams) < 2:
        return ""
    record, settings = services.reader.pipeline(pipeline), services.reader.settings()
    team = "" if record is None else record.owner or ""
    if (use := teams.get(team)) is None:
        return ""
    slots = sum(worker.slots for worker in services.reader.workers())
    pool = of.removeprefix("pool ")
    of_pool = use.pools.get(pool, 0), settings.pools.get(pool, 0)
    known = {"slots": (use.slots, slots), "runs": (use.runs, services.max_running or 0)}
    has, total = known.get(of, of_pool)
    what = f"of {of}" if of.startswith("pool ") else of
    share = f"{settings.share_of(team, total, teams):.1f}".removesuffix(".0")
    name = f"team {team}" if team else "pipelines without an owner"
    have = "has" if team else "have"
    return f"; {name} {have} {has} of {total} {what}, {'its' if team else 'their'} share is {share}"


def _upstream(services: ApiServices, name: PipelineName) -> Upstream:
    runs = tuple(live_runs(services, name))
    return Upstream(services.reader.intervals(name), runs, services.reader.pipeline(name) is not None)


def dataset_view(services: ApiServices, name: DatasetName) -> DatasetView:
    """What is known of a dataset, its publishers and their runs."""
    publishers = publishers_of(services).get(name, [])
    listed = services.reader.run_list().values()
    runs = (run.id for run in listed if run.pipeline in publishers and not run.state.is_final)
    return DatasetView(services.reader.dataset(name), tuple(publishers), tuple(runs))


def publishers_of(services: ApiServices) -> dict[DatasetName, list[PipelineName]]:
    """Pipelines with an active release that publishes, by dataset."""
    return by_dataset((record.name, record.profile.datasets) for record in active_pipelines(services))


def by_dataset(users: Iterable[tuple[T, Iterable[DatasetName]]]) -> dict[DatasetName, list[T]]:
    """Pipelines, or their records, by the datasets that each has."""
    turned: defaultdict[DatasetName, list[T]] = defaultdict(list)
    for pipeline, names in users:
        for name in names:
            turned[name].append(pipeline)
    return turned


def active_pipelines(services: ApiServices) -> Iterator[PipelineRecord]:
    """Pipelines with an active release, also paused ones."""
    return (record for record in services.reader.pipelines() if record.state is not PipelineState.INACTIVE)


def _probes(schedulers: Iterable[SchedulerInfo]) -> Mapping[str, LastProbe]:
    return next((scheduler.looks for scheduler in schedulers if scheduler.epoch is not None), {})


def queue_view(
    services: ApiServices, schedulers: Schedulers, pipeline: PipelineName, record: PipelineRecord | None
) -> QueueView:
    """The facts for explanations of a pipeline's queued runs. `record`: None: it has been removed."""
    concurrency = None if record is None else record.profile.concurrency
    of_all = services.max_running is not None
    return QueueView(
        live=[
            listed
            for listed in services.reader.run_list().values()
            if not listed.state.is_final and (of_all or listed.pipeline == pipeline)
        ],
        limit=None if concurrency is None else concurrency.limit,
        max_running=services.max_running,
        held=why_held(record, services.reader.settings().holds),
        share=partial(share_words, services, schedulers, pipeline, "runs"),
    )


def _capacity(services: ApiServices, schedulers: Schedulers) -> Capacity:
    reader, settings = services.reader, services.reader.settings()
    limits = leader_report(schedulers()).limits
    workers, refused = settings.applied_to(reader.workers()), views.refusals(schedulers())
    busy = views.busy_slots(reader.orders(worker.id for worker in workers), workers)
    capacity = Capacity(
        workers=workers,
        free=by_rank(workers, busy, refused),
        submitting=[worker for worker in workers if not (worker.draining or worker.lacks)],
        refusals=refused,
        target_slots=target_slots(workers),
        open_at=lambda target: limits.targets.get(target, 0),
        pools=settings.pools,
        used=lambda pool: limits.pools.get(pool, 0),
        busy=lambda worker: busy.get(worker, 0),
        jvm_releases={name for worker in workers for name in worker.jvm_releases},
        share=cache(partial(share_words, services, schedulers)),
        holder=cache(lambda pool: _holder(services, limits.held_for.get(pool), capacity)),
    )
    return capacity


def _holder(services: ApiServices, held_for: WaitingTask | None, capacity: Capacity) -> PoolHolder | None:
    """The task that holds a pool, if it still waits."""
    run = None if held_for is None else services.reader.run(held_for.run)
    task = None if run is None or held_for is None else run.tasks.get(held_for.task)
    if run is None or task is None or not is_ready(run, task):
        return None
    return holder_of(run, task, capacity)
