"""Reads a leader's store in memory for the API, and makes services from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import CollectorRegistry

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.cluster import TreeClusterReader
from nimbus.api.services import ApiServices, ConfirmedLeader, QueuePlace
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.ids import HostId
from nimbus.engine.report import report
from nimbus.engine.state import State
from nimbus.ports import Clock
from tests.nimbus.definitions import OnDisk
from tests.nimbus.dict_cluster import ROOT, DictCluster


class StoreReader(TreeClusterReader):
    """Reads the registration of the leader from the leader itself."""

    def __init__(self, cluster: DictCluster, leader: Callable[[], SchedulerInfo | None]) -> None:
        super().__init__(cluster.calls(), ROOT)
        self.leader = leader

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        leader = self.leader()
        others = [one for one in super().schedulers() if leader is None or one.id != leader.id]
        return (*others, *([] if leader is None else [leader]))


@dataclass
class _Health:
    """Knows only the leader."""

    said: Callable[[], SchedulerInfo | None]

    def leader(self) -> ConfirmedLeader | None:
        leader = self.said()
        return None if leader is None else ConfirmedLeader(id=leader.id, address=leader.address, epoch=1)

    def info(self) -> SchedulerInfo | None:
        return self.said()

    def schema(self) -> int | None:
        return None

    def participants(self) -> tuple[QueuePlace, ...]:
        return ()

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
        role=ElectionRole.LEADER,
        epoch=state.epoch,
        quarantined={str(name): why for name, why in state.catalog.quarantined.items()},
        refusals=state.attempts.workers.refusals,
        looks=dict(state.tasks.probes._short()),
        report=report(state),
    )
    return replace(info, **more)


def services_over(
    cluster: DictCluster,
    clock: Clock,
    leader: Callable[[], SchedulerInfo | None],
    max_running: int | None = None,
    timings: Timings | None = None,
) -> ApiServices:
    """The services that explanations use."""
    health: Any = _Health(leader)
    bucket = MemoryObjectStore()
    return ApiServices(
        reader=StoreReader(cluster, leader),
        definitions=OnDisk(),
        commands=cluster.queue(),
        history=S3History(bucket),
        logs=S3LogArchive(bucket),
        health=health,
        metrics=CollectorRegistry(),
        clock=clock,
        releases=None,  # type: ignore[arg-type]  # no test reads one
        changes=cluster.changes(),
        max_running=max_running,
        timings=timings or Timings(),
    )
