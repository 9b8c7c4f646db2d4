"""Builds the processes of Nimbus from their settings. The only module that knows every adapter."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from blobsync import (
    LocalStore,
    Readiness,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Secret,
    StoreAccessDeniedError,
    StoreUnavailableError,
    Syncer,
)
from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    SessionState,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus import __version__
from nimbus.adapters.clock import SystemClock
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.zookeeper.board import ZooKeeperAttemptBoard
from nimbus.adapters.zookeeper.cluster import (
    ZooKeeperClusterReader,
    ZooKeeperCommandQueue,
    ZooKeeperRegistrations,
)
from nimbus.adapters.zookeeper.leader_store import ZooKeeperLeaderStore
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.api.services import ApiServices
from nimbus.config import Settings
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, WorkerId
from nimbus.domain.supervision import Timings
from nimbus.engine.effects import Effects
from nimbus.engine.facts import Policy
from nimbus.engine.loop import Engine, EngineStatus
from nimbus.engine.news import News, QuarantineChanged
from nimbus.engine.readiness import GatePolicy
from nimbus.java import find_java
from nimbus.scheduler.catalog_follower import CatalogFollower
from nimbus.scheduler.guard import ReadinessGuard
from nimbus.scheduler.health import Identity, SelfReport
from nimbus.scheduler.process import FORCED, run_until_signal
from nimbus.scheduler.registrar import Registrar
from nimbus.scheduler.releases import LocalReleases
from nimbus.scheduler.scheduler import Parts, Scheduler
from nimbus.telemetry.engine import EngineMetrics
from nimbus.telemetry.logging import configure
from nimbus.telemetry.readiness import ReadinessMetrics
from nimbus.worker.connections import Connections
from nimbus.worker.identity import host_id, hostname
from nimbus.worker.settings import WorkerSettings
from nimbus.worker.worker import Worker

_log = structlog.get_logger(__name__)


class StorageRefusedError(NimbusError):
    """S3 answers, and says no: starting would only hide it."""

    code = "storage_refused"
    exit_code = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """What every daemon needs: settings, clock, ZooKeeper, S3."""

    settings: Settings
    clock: SystemClock
    session: ZooKeeperSession
    store: S3ObjectStore
    reader: ZooKeeperClusterReader


def run_scheduler(settings: Settings) -> int:
    """Run a scheduler until it is told to stop. Returns the exit code.

    Raises:
        NimbusError, LeaderError, BlobSyncError: it cannot start: the message says why and what to do.
    """
    configure(settings.log.level, settings.log.format)
    if settings.worker.embedded:
        find_java()  # said now, not by the first task
    foundation = _foundation(settings)
    parts = _parts(foundation)
    scheduler = Scheduler(parts)
    code = run_until_signal(scheduler.start, scheduler.stop, settings.scheduler.shutdown_timeout)
    return code if parts.worker is None else _code_after(parts.worker.failure, code)


def run_worker(settings: Settings) -> int:
    """Run a worker of its own until it is told to stop; its runners go on. Returns the exit code."""
    configure(settings.log.level, settings.log.format)
    find_java()
    foundation = _foundation(settings)
    syncer = _syncer(foundation, lambda _readiness: None)
    registrations = ZooKeeperRegistrations(foundation.session, settings.cluster.root)
    worker = _worker(foundation, syncer, registrations, scheduler_id=None)

    def start() -> None:
        syncer.start()
        worker.start()
        _log.info("worker_started", worker=settings.worker.id)

    def stop() -> None:
        worker.drain()
        worker.close(timedelta(seconds=5))
        registrations.withdraw()
        syncer.close(timedelta(seconds=5))
        foundation.session.close(timedelta(seconds=5))

    code = run_until_signal(start, stop, settings.scheduler.shutdown_timeout)
    return _code_after(worker.failure, code)


def s3_config(settings: Settings) -> S3Config:
    """How S3 is reached."""
    storage = settings.storage
    secret = storage.secret_access_key
    return S3Config(
        endpoint_url=storage.endpoint_url,
        bucket=storage.bucket,
        prefix=storage.prefix,
        region=storage.region,
        access_key_id=storage.access_key_id,
        secret_access_key=None if secret is None else Secret(secret.get_secret_value()),
        connect_timeout=storage.connect_timeout,
        read_timeout=storage.read_timeout,
    )


def _foundation(settings: Settings) -> Foundation:
    store = S3ObjectStore(s3_config(settings))
    try:
        store.check()
    except StoreUnavailableError as exc:
        # A scheduler that has all it needs leads without S3, so this is no reason not to start.
        _log.warning("storage_unreachable", error=str(exc))
    except StoreAccessDeniedError as exc:
        raise StorageRefusedError(str(exc)) from exc
    session = ZooKeeperSession(_zookeeper_config(settings))
    session.start(settings.zookeeper.connect_timeout)
    return Foundation(
        settings=settings,
        clock=SystemClock(),
        session=session,
        store=store,
        reader=ZooKeeperClusterReader(session, settings.cluster.root),
    )


def _parts(foundation: Foundation) -> Parts:
    settings, session, root = foundation.settings, foundation.session, foundation.settings.cluster.root
    registry = CollectorRegistry()
    history = S3History(foundation.store)
    identity = _identity(foundation)
    late = _Switchboard()
    syncer = _syncer(foundation, late.synced)
    guard = ReadinessGuard(
        me=identity.id,
        reader=foundation.reader,
        readiness=syncer.readiness,
        policy=GatePolicy(settings.leadership.gate_policy),
        forced_takeover_after=settings.leadership.forced_takeover_after,
        clock=foundation.clock,
        on_quarantine=late.quarantine,
    )
    effects = Effects(
        history=history,
        preparer=LocalReleases(syncer),
        resign=late.resign,
        tell=late.tell,
    )

    def store_for(leadership: Leadership) -> ZooKeeperLeaderStore:
        return ZooKeeperLeaderStore(session, root, leadership.token)

    late.engine = Engine(
        store_for=store_for,
        still_leads=late.leads,
        start_effect=effects.start,
        policy=_policy(settings),
        clock=foundation.clock,
        metrics=EngineMetrics(registry),
        on_status=late.changed,
    )
    late.election = LeaderLockQueue(
        session=session,
        config=_election_config(settings),
        participant=_participant(settings, identity),
        guard=guard,
        electable=late.engine,
    )
    follower = CatalogFollower(foundation.reader, syncer.want, late.changed)
    report = SelfReport(
        identity=identity,
        election=late.election,
        engine_status=late.engine_status,
        required=lambda: follower.required,
        readiness=syncer.readiness,
        connected=lambda: session.is_connected,
        storage_trouble=lambda: _storage_trouble(syncer.readiness()),
        clock=foundation.clock,
    )
    registrations = ZooKeeperRegistrations(session, root)
    late.registrar = Registrar(
        registrations=registrations,
        info=report.info,
        somebody_leads=lambda: report.leader() is not None,
        leader_seen=guard.leader_seen,
        poke=late.election.poke,
        quarantine=late.quarantine,
        metrics=ReadinessMetrics(registry),
    )
    api = create_app(
        ApiServices(
            reader=foundation.reader,
            commands=ZooKeeperCommandQueue(session, root),
            history=history,
            logs=S3LogArchive(foundation.store),
            health=report,
            metrics=registry,
            clock=foundation.clock,
        )
    )
    embedded = settings.worker.embedded
    return Parts(
        session=session,
        syncer=syncer,
        follower=follower,
        registrar=late.registrar,
        engine=late.engine,
        effects=effects,
        election=late.election,
        api=ApiServer(api, settings.scheduler.host, settings.scheduler.port),
        worker=_worker(foundation, syncer, registrations, scheduler_id=identity.id) if embedded else None,
    )


class _Switchboard:
    """Reaches parts that are built later: the wiring has circles, the imports do not."""

    engine: Engine
    election: LeaderLockQueue
    registrar: Registrar

    def tell(self, news: News) -> None:
        """To the engine."""
        self.engine.tell(news)

    def quarantine(self, quarantined: Mapping[PipelineName, str]) -> None:
        """To the engine."""
        self.engine.tell(QuarantineChanged(quarantined))

    def resign(self, reason: str) -> None:
        """To the election."""
        self.election.abdicate(reason)

    def leads(self) -> bool:
        """From the election, at the point of use."""
        return self.election.is_leader()

    def engine_status(self) -> EngineStatus:
        """From the engine."""
        return self.engine.status

    def changed(self) -> None:
        """To the registrar: something that is reported has changed."""
        self.registrar.changed()

    def synced(self, _readiness: Readiness) -> None:
        """To the registrar: the local store has changed."""
        self.registrar.changed()


def _syncer(foundation: Foundation, changed: Callable[[Readiness], None]) -> Syncer:
    settings = foundation.settings
    return Syncer(
        foundation.store,
        LocalStore(settings.scheduler.state_dir / "blobs"),
        retry=RetryPolicy(max_wait=settings.sync.retry_max),
        on_change=changed,
        scrub_interval=settings.sync.scrub_interval,
    )


def _worker(
    foundation: Foundation, syncer: Syncer, registrations: ZooKeeperRegistrations, *, scheduler_id: str | None
) -> Worker:
    settings = foundation.settings
    worker = settings.worker
    built = Worker(
        settings=WorkerSettings(
            id=WorkerId(worker.id),
            work_dir=worker.work_dir,
            data_dir=worker.data_dir,
            slots=worker.slots,
            master=worker.master,
            spark_conf=worker.spark_conf,
            env=worker.env,
            java_home=lambda: find_java().java_home,
            stop_grace=worker.stop_grace,
            prepare_timeout=worker.prepare_timeout,
            keep_attempts=worker.keep_attempts,
            version=__version__,
            scheduler_id=scheduler_id,
        ),
        board=ZooKeeperAttemptBoard(foundation.session, settings.cluster.root),
        registrations=registrations,
        releases=LocalReleases(syncer),
        connections=Connections(board=_board_connection(settings), logs=_log_connection(settings)),
        clock=foundation.clock,
        logs=S3LogArchive(foundation.store),
        on_failure=_end_process,
    )

    def on_session(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            built.session_renewed()  # only enqueues

    foundation.session.add_listener(on_session)
    return built


def _end_process(cause: BaseException) -> None:
    """A worker without its thread would only look alive: end in order, so that a supervisor starts anew."""
    _log.error("process_ends", because="its worker failed", error=str(cause))
    os.kill(os.getpid(), signal.SIGTERM)


def _code_after(failure: BaseException | None, code: int) -> int:
    return code if failure is None else int(getattr(failure, "exit_code", FORCED))


def _zookeeper_config(settings: Settings) -> ZooKeeperConfig:
    zookeeper = settings.zookeeper
    return ZooKeeperConfig(
        hosts=zookeeper.hosts,
        session_timeout=zookeeper.session_timeout,
        call_timeout=zookeeper.call_timeout,
        auth=_zookeeper_auth(settings),
    )


def _zookeeper_auth(settings: Settings) -> tuple[str, str] | None:
    zookeeper = settings.zookeeper
    if zookeeper.username is None or zookeeper.password is None:
        return None
    return ("digest", f"{zookeeper.username}:{zookeeper.password.get_secret_value()}")


def _board_connection(settings: Settings) -> dict[str, Any]:
    """As JSON: it goes to the runners."""
    return {
        "kind": "zookeeper",
        "root": settings.cluster.root,
        "hosts": settings.zookeeper.hosts,
        "session_timeout_s": settings.zookeeper.session_timeout.total_seconds(),
        "auth": _zookeeper_auth(settings),
    }


def _log_connection(settings: Settings) -> dict[str, Any]:
    """As JSON: it goes to the runners."""
    storage = settings.storage
    secret = storage.secret_access_key
    return {
        "kind": "s3",
        "endpoint_url": storage.endpoint_url,
        "bucket": storage.bucket,
        "prefix": storage.prefix,
        "region": storage.region,
        "access_key_id": storage.access_key_id,
        "secret_access_key": None if secret is None else secret.get_secret_value(),
    }


def _identity(foundation: Foundation) -> Identity:
    settings = foundation.settings
    settings.scheduler.state_dir.mkdir(parents=True, exist_ok=True)
    return Identity(
        id=settings.scheduler.id,
        boot_id=secrets.token_hex(8),
        host=host_id(),
        hostname=hostname(),
        address=settings.scheduler.advertise_url,
        version=__version__,
        started_at=foundation.clock.now(),
        state_dir=settings.scheduler.state_dir,
    )


def _participant(settings: Settings, identity: Identity) -> Participant:
    """Where others reach this scheduler, which need not be where it listens."""
    advertised = urlsplit(identity.address)
    return Participant(
        id=identity.id,
        host=advertised.hostname or settings.scheduler.host,
        port=advertised.port or settings.scheduler.port,
        boot_id=identity.boot_id,
    )


def _election_config(settings: Settings) -> ElectionConfig:
    leadership = settings.leadership
    return ElectionConfig(
        root=settings.cluster.root,
        guard_timeout=leadership.guard_timeout,
        requeue_backoff_min=leadership.requeue_min,
        requeue_backoff_max=leadership.requeue_max,
        step_down_margin=leadership.step_down_margin,
    )


def _policy(settings: Settings) -> Policy:
    supervision = settings.supervision
    return Policy(
        timings=Timings(
            claim_timeout=supervision.claim_timeout,
            beat_grace=supervision.beat_grace,
            host_lost_after=supervision.host_lost_after,
        ),
        max_mishaps=supervision.max_mishaps,
        keep_finished=settings.runs.keep_finished,
    )


def _storage_trouble(readiness: Readiness) -> str:
    """What the syncer last had to say against S3, if it waits for it."""
    return next((found.reason for found in readiness.releases.values() if found.state == "unavailable"), "")
