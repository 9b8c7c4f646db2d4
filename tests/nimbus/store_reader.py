"""Reads a leader's store in memory for the API, and makes services from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import CollectorRegistry

from nimbus.adapters.memory import MemoryCluster as Commands
from nimbus.adapters.memory import MemoryHistory, MemoryLogs
from nimbus.adapters.memory_store import MemoryCluster, World
from nimbus.api.services import ApiServices, LeaderView
from nimbus.domain.commands import CommandOutcome, newest_refusal
from nimbus.domain.ids import AttemptId, BackfillId, HostId, PipelineName, RunId, WorkerId
from nimbus.domain.run import ListedRun, Run
from nimbus.domain.schedulers import Role, SchedulerInfo
from nimbus.domain.slots import Slots
from nimbus.domain.supervision import Timings
from nimbus.engine.report import report
from nimbus.engine.state import State
from nimbus.ports import Clock
from tests.nimbus.definitions import OnDisk


@dataclass
class StoreReader:
    """See `nimbus.ports.ClusterReader`."""

    cluster: MemoryCluster
    leader: Callable[[], SchedulerInfo | None]
    """The registration of the leader."""

    @property
    def _world(self) -> World:
        return self.cluster.world

    def pipelines(self) -> tuple[Any, ...]:
        return tuple(self._world.pipelines[name] for name in sorted(self._world.pipelines))

    def pipeline(self, name: PipelineName) -> Any:
        return self._world.pipelines.get(name)

    def backfills(self) -> tuple[Any, ...]:
        return tuple(self._world.backfills.values())

    def backfill(self, backfill: BackfillId) -> Any:
        return self._world.backfills.get(backfill)

    def intervals(self, name: PipelineName) -> Any:
        return self._world.intervals.get(name)

    def run_list(self) -> Mapping[str, ListedRun]:
        return {run.id: run.listed() for run in self._world.runs.values()}

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        return {run: self._world.runs[run] for run in wanted if run in self._world.runs}

    def run(self, run: RunId) -> Run | None:
        return self._world.runs.get(run)

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        return {one: self._world.slots[one] for one in attempts if one in self._world.slots}

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        leader = self.leader()
        others = [one for one in self._world.schedulers if leader is None or one.id != leader.id]
        return (*others, *([] if leader is None else [leader]))

    def workers(self) -> tuple[Any, ...]:
        return tuple(self._world.workers[name] for name in sorted(self._world.workers))

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        return {
            wanted: [str(attempt) for worker, attempt in self._world.orders if worker == wanted]
            for wanted in workers
        }

    def commands(self) -> tuple[Any, ...]:
        return tuple(self._world.commands[key] for key in sorted(self._world.commands))

    def settings(self) -> Any:
        return self._world.settings

    def alerts(self) -> tuple[Any, ...]:
        return tuple(self._world.alerts.values())


class _Answered(Commands):
    """The outcomes of decided commands."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        return newest_refusal(run, self._cluster.world.outcomes.values())


@dataclass
class _Health:
    """Knows only the leader."""

    said: Callable[[], SchedulerInfo | None]

    def leader(self) -> LeaderView | None:
        leader = self.said()
        return None if leader is None else LeaderView(id=leader.id, address=leader.address, epoch=1)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"no explanation asks for {name}")


def leading(state: State, clock: Clock, **more: Any) -> SchedulerInfo:
    """The registration of a leader with this state."""
    info = SchedulerInfo(
        id="s1",
        boot_id="b",
        host=HostId("h"),
        hostname="h",
        address="http://s1",
        pid=1,
        version="1",
        started_at=clock.now(),
        reported_at=clock.now(),
        role=Role.LEADER,
        epoch=state.epoch,
        quarantined={str(name): why for name, why in state.quarantined.items()},
        refusals=state.workers.refusals,
        looks=dict(state.looks._short()),
        report=report(state),
    )
    return replace(info, **more)


def services_over(
    cluster: MemoryCluster,
    clock: Clock,
    leader: Callable[[], SchedulerInfo | None],
    max_running: int | None = None,
    timings: Timings | None = None,
) -> ApiServices:
    """The services that explanations use."""
    health: Any = _Health(leader)
    return ApiServices(
        reader=StoreReader(cluster, leader),
        definitions=OnDisk(),
        commands=_Answered(cluster),
        history=MemoryHistory(),
        logs=MemoryLogs(),
        health=health,
        metrics=CollectorRegistry(),
        clock=clock,
        releases=None,  # type: ignore[arg-type]  # no test reads one
        changes=Commands().changes(),
        max_running=max_running,
        timings=timings or Timings(),
    )
