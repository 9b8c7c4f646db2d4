"""This scheduler's report about itself, for the API and for its registration."""

from __future__ import annotations

import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil

from blobsync import Readiness, SyncProgress
from leader import Elector, LeaderError, Phase, Verdict, next_in_line
from nimbus.api.services import ConfirmedLeader, QueuePlace, ReadinessCheck
from nimbus.domain.attempts.workers import Refusals
from nimbus.domain.cluster.schedulers import ElectionRole, LeaderReport, SchedulerInfo
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.domain.ids import HostId, PipelineName, WorkerId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.wording import shortened
from nimbus.engine.loop import EngineStatus
from nimbus.ports import Clock, StoreUnavailableError
from nimbus.scheduler.readiness import assess

MISSING_SHOWN = 20
"""Limit of missing files named in a registration; the count includes all."""
REFUSING_SHOWN = 200
"""Limit of refusing workers in the leader's registration: those that back off longest are named."""
_LOOKED_AT_S = 30.0
_SAMPLE_EVERY_S = 1.0


class SyncRate:
    """Estimates the remaining time of the sync, by the speed of the last half minute. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()

    def left_s(self, progress: SyncProgress, elapsed_s: float) -> float | None:
        """Remaining whole seconds, at least one; None: nothing was fetched lately."""
        with self._lock:
            samples = self._samples
            if samples and elapsed_s > samples[-1][0] + _LOOKED_AT_S:  # after a long gap, it is another sync
                samples.clear()
            if not samples or elapsed_s >= samples[-1][0] + _SAMPLE_EVERY_S:
                samples.append((elapsed_s, progress.fetched_bytes))
            # The oldest kept sample is just before the half minute, so that the period is never shorter.
            while len(samples) > 1 and samples[1][0] <= elapsed_s - _LOOKED_AT_S:
                samples.popleft()
            since_s, fetched_bytes = samples[0]
        came, left = progress.fetched_bytes - fetched_bytes, progress.total_bytes - progress.done_bytes
        if came <= 0 or elapsed_s <= since_s:
            return None
        return max(1.0, float(round(left * (elapsed_s - since_s) / came)))


_ROLES = {
    Phase.LATENT: ElectionRole.STARTING,
    Phase.WAITING: ElectionRole.STARTING,
    Phase.QUEUED: ElectionRole.QUEUED,
    Phase.ELECTED: ElectionRole.VALIDATING,
    Phase.GUARDING: ElectionRole.VALIDATING,
    Phase.BACKING_OFF: ElectionRole.BACKING_OFF,
    Phase.CLOSED: ElectionRole.STOPPING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Facts that do not change while the process lives."""

    id: str
    boot_id: str
    host: HostId
    hostname: str
    address: str
    version: str
    started_at: datetime
    state_dir: Path


class SelfReport:
    """See `nimbus.api.services.HealthPort`. Any thread."""

    def __init__(
        self,
        *,
        identity: Identity,
        election: Elector,
        engine_status: Callable[[], EngineStatus],
        required: Callable[[], frozenset[ReleaseOf] | None],
        readiness: Callable[[], Readiness],
        progress: Callable[[], SyncProgress],
        store_trouble: Callable[[], str],
        has_sentinel: Callable[[], bool],
        id_taken: Callable[[], str],
        store: Literal["zookeeper", "sqlite"],
        storage_trouble: Callable[[], str],
        disk_trouble: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._identity = identity
        self._scheme = urlsplit(identity.address).scheme or "http"
        """Scheme of all schedulers' URLs: all hosts have the same configuration."""
        self._election = election
        self._engine_status = engine_status
        self._required = required
        self._readiness, self._progress = readiness, progress
        self._rate = SyncRate()
        self._store_trouble, self._store = store_trouble, store
        self._has_sentinel, self._id_taken = has_sentinel, id_taken
        self._storage_trouble, self._disk_trouble = storage_trouble, disk_trouble
        self._clock = clock

    def info(self) -> SchedulerInfo:
        status = self._election.status()
        engine = self._engine_status()
        required = assess(self._required(), self._readiness())
        reasons = (*filter(None, (self._id_taken(),)), *required.reasons)
        leads = engine.epoch is not None and self._election.is_leader()
        return SchedulerInfo(
            newest_schema=NEWEST_SCHEMA,
            has_sentinel=self._has_sentinel(),
            id=self._identity.id,
            boot_id=self._identity.boot_id,
            host=self._identity.host,
            hostname=self._identity.hostname,
            address=self._identity.address,
            pid=os.getpid(),
            version=self._identity.version,
            started_at=self._identity.started_at,
            reported_at=self._clock.now(),
            role=self._role(leads, status.phase, engine, bool(required.lacks)),
            epoch=engine.epoch if leads else None,
            leader_since=engine.leader_since if leads else None,
            recovered_at=engine.recovered_at if leads else None,
            ready=not reasons,
            lacks=shortened("; ".join(reasons)),
            missing=required.missing[:MISSING_SHOWN],
            missing_count=len(required.missing),
            missing_bytes=sum(file.size_bytes for file in required.missing),
            missing_eta_s=(
                self._rate.left_s(self._progress(), self._clock.elapsed_s()) if required.lacks else None
            ),
            guard_said=_guard_said(status.last_verdict),
            last_abdication=status.last_abdication or "",
            quarantined=_texts(required.hopeless) if leads else {},
            looks=engine.probes if leads else {},
            refusals=_longest(engine.refusals) if leads else {},
            report=engine.report if leads else LeaderReport(),
            load_average=os.getloadavg()[0],
            memory_available_bytes=psutil.virtual_memory().available,
            disk_free_bytes=_free_bytes(self._identity.state_dir),
        )

    @staticmethod
    def _role(leads: bool, phase: Phase, engine: EngineStatus, lacks: bool) -> ElectionRole:
        if leads:
            return ElectionRole.LEADER if engine.recovered_at is not None else ElectionRole.RECOVERING
        if phase is Phase.BACKING_OFF and lacks:
            return ElectionRole.SYNCING
        return _ROLES.get(phase, ElectionRole.VALIDATING)

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Conditions for serving the API. A standby that still syncs can serve."""
        required, taken = assess(self._required(), self._readiness()), self._id_taken()
        trouble, disk_trouble = self._storage_trouble(), self._disk_trouble()
        store_trouble = self._store_trouble()
        return (
            ReadinessCheck(name=self._store, ok=not store_trouble, detail=store_trouble),
            ReadinessCheck(name="storage", ok=not trouble, detail=trouble, required=False),
            ReadinessCheck(name="disk", ok=not disk_trouble, detail=disk_trouble, required=False),
            ReadinessCheck(
                name="artifacts",
                ok=not required.reasons,
                detail=shortened("; ".join(required.reasons)),
                required=False,
            ),
            ReadinessCheck(name="registration", ok=not taken, detail=taken, required=False),
        )

    def participants(self) -> Sequence[QueuePlace]:
        try:
            views = self._election.get_all_participants()
        except LeaderError as exc:
            raise StoreUnavailableError(f"the lock queue cannot be read: {exc}") from exc
        successor = next_in_line(views)
        return tuple(
            QueuePlace(
                id=view.participant.id,
                boot_id=view.participant.boot_id,
                position=view.position,
                is_leader=view.is_leader,
                is_next=view is successor,
            )
            for view in views
        )

    def schema(self) -> int | None:
        try:
            epoch = self._election.get_epoch()
        except LeaderError as exc:
            raise StoreUnavailableError(f"the cluster's schema cannot be read: {exc}") from exc
        return None if epoch is None else epoch.schema

    def leader(self) -> ConfirmedLeader | None:
        try:
            row = self._election.get_leader()
        except LeaderError as exc:
            raise StoreUnavailableError(f"the leader's record cannot be read: {exc}") from exc
        if row is None:
            return None
        return ConfirmedLeader(
            id=row.participant.id,
            address=_url(self._scheme, row.participant.host, row.participant.port),
            epoch=row.epoch,
        )


def _free_bytes(folder: Path) -> int:
    """Free bytes of a folder's disk; 0 if the disk returns an error, which must not stop the reports."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _guard_said(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    if verdict.ready:
        return shortened(f"degraded: {verdict.why()}") if verdict.degraded else "ready"
    return shortened(verdict.why())


def _texts(reasons: Mapping[PipelineName, str]) -> dict[str, str]:
    return {str(name): reason for name, reason in reasons.items()}


def _longest(refusals: Mapping[WorkerId, Refusals]) -> dict[WorkerId, Refusals]:
    return dict(nlargest(REFUSING_SHOWN, refusals.items(), key=lambda item: item[1].until))
