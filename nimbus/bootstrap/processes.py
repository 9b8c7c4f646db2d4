"""The two daemons, a scheduler and a standalone worker; and the metrics server of the worker."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry

from blobsync import Syncer, give_back_large_blocks
from leader import CrashSentinel, SessionState, ZooKeeperSession, read_epoch
from nimbus.access.gate import AccessGate
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeAccess, TreeRegistrations
from nimbus.api.access import Authenticate, authorize
from nimbus.api.middleware import AnswerHead, CrossSiteGuard
from nimbus.api.problems import install
from nimbus.api.routes import health
from nimbus.api.server import ApiServer
from nimbus.bootstrap.access import allowed_hosts, build_access_follower, build_gate, build_tls
from nimbus.bootstrap.collector import build_collector
from nimbus.bootstrap.resources import Resources, build_syncer, epoch_file, open_resources
from nimbus.bootstrap.start_checks import check_access_lists
from nimbus.config import InvalidConfigurationError, Settings
from nimbus.config.problems import Problem
from nimbus.domain.cluster.schema import check_known
from nimbus.java import JavaMissingError, find_java
from nimbus.scheduler.followers import AccessFollower
from nimbus.scheduler.process import FORCED, run_until_signal, shutdown_step
from nimbus.scheduler.scheduler import Scheduler
from nimbus.telemetry.build import tell_build
from nimbus.telemetry.daemon import GarbageMetrics, SyncMetrics
from nimbus.telemetry.logging import configure
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.identity import hostname

if TYPE_CHECKING:
    from nimbus.worker.worker import Worker

_log = structlog.get_logger(__name__)

STEP = timedelta(seconds=5)
"""Longest wait until one part has stopped."""
_POLL_S = 0.2


def run_scheduler(settings: Settings) -> int:
    """Run a scheduler until a signal stops it. Returns the exit code.

    Raises NimbusError, LeaderError, BlobSyncError: it cannot start; the message says why, and what to do.
    """
    from nimbus.bootstrap.scheduler import build_parts  # a worker does not need it

    configure(settings.log.level, settings.log.format)
    give_back_large_blocks()  # frees the buffers of a sync
    if settings.worker.embedded and settings.store_folder is None:
        _look_for_java()
    resources = open_resources(settings)
    root, epochs = settings.cluster.root, epoch_file(settings)
    if isinstance(resources.session, ZooKeeperSession):
        if (term := read_epoch(resources.session, root)) is not None:
            check_known(term.schema, root)
    elif epochs is not None:
        from nimbus.bootstrap.start_checks import check_epochs

        check_epochs(resources.session, root, epochs)
    check_access_lists(resources.session, settings)
    with _crash_sentinel(resources) as has_sentinel:  # before the scheduler queues for leadership
        parts = build_parts(resources, has_sentinel)
        scheduler = Scheduler(parts)
        _keep_what_is_loaded()
        code = run_until_signal(
            scheduler.start,
            scheduler.stop,
            settings.scheduler.shutdown_timeout,
            warm_up=parts.api.warm_up,
        )
    return code if parts.worker is None else _code_after(parts.worker.failure, code)


def run_worker(settings: Settings) -> int:
    """Run a standalone worker until a signal stops it; its runners continue. Returns the exit code.

    Raises InvalidConfigurationError: the configuration is that of a single scheduler.
    """
    if settings.store_folder is not None:
        message = "is single: the worker of a single scheduler runs in its process; start `nimbus scheduler`"
        raise InvalidConfigurationError(
            [Problem(file="configuration", key="leadership.elector", message=message)]
        )
    from nimbus.bootstrap.worker import build_worker

    configure(settings.log.level, settings.log.format)
    give_back_large_blocks()
    _look_for_java()
    resources = open_resources(settings)
    syncer = build_syncer(resources, lambda _readiness: None)
    registrations = TreeRegistrations(calls_on(resources.session), settings.cluster.root)
    registry = CollectorRegistry()
    tell_build(registry)
    add_sync_metrics(registry, resources, syncer)
    worker = build_worker(resources, syncer, registrations, WorkerMetrics(registry), scheduler_id=None)
    collector = build_collector(resources, GarbageMetrics(registry), leads=None)
    metrics = build_metrics_server(resources, registry)
    drain_timeout = settings.worker.drain_timeout

    def start() -> None:
        if metrics is not None:
            metrics.start()  # first, to fail on a busy port before anything else is changed
        syncer.start()
        worker.start()
        collector.start()
        _log.info("worker_started", worker=settings.worker.id)

    def stop() -> None:
        collector.stop_soon()
        shutdown_step("worker drained", worker.drain)
        shutdown_step("attempts ended", lambda: _await_attempts(worker, drain_timeout))
        shutdown_step("worker closed", lambda: worker.close(STEP))
        shutdown_step("registration withdrawn", registrations.withdraw)
        shutdown_step("syncer stopped", lambda: syncer.close(STEP))
        shutdown_step("collector stopped", lambda: collector.stop(STEP))
        if metrics is not None:
            shutdown_step("metrics stopped", lambda: metrics.stop(STEP))
        shutdown_step("session closed", lambda: resources.session.close(STEP))

    _keep_what_is_loaded()
    code = run_until_signal(start, stop, settings.scheduler.shutdown_timeout + drain_timeout)
    return _code_after(worker.failure, code)


def _await_attempts(worker: Worker, limit: timedelta) -> None:
    """Wait until the attempts of a draining worker have ended, or the limit has passed."""
    ends = boottime_s() + limit.total_seconds()
    while (left := worker.unended()) and boottime_s() < ends:
        time.sleep(_POLL_S)
    if left and limit:
        _log.warning("drain_timed_out", attempts=len(left), limit_s=limit.total_seconds())


def _keep_what_is_loaded() -> None:
    """Exclude modules and settings, which are most objects and are never freed, from garbage collections.

    The little garbage among them stays, too: collecting it would make the start a tenth of a second longer.
    """
    gc.freeze()
    gc.enable()


def _look_for_java() -> None:
    """Warn at the start that a worker without Java must refuse Spark tasks."""
    try:
        find_java()
    except JavaMissingError as exc:
        _log.warning("java_missing", effect="tasks that need Spark are refused here", error=str(exc))


@contextmanager
def _crash_sentinel(resources: Resources) -> Iterator[Callable[[], bool]]:
    """A program that ends our ZooKeeper session if this process dies before it has closed it.

    Yields a function that is true while the program runs.
    """
    if not resources.settings.leadership.sentinel or not isinstance(resources.session, ZooKeeperSession):
        yield lambda: False  # a session in SQLite ends with its process anyway
        return
    sentinel = CrashSentinel(resources.session)
    sentinel.start()
    try:
        yield lambda: sentinel.pid is not None
    finally:
        sentinel.close(STEP)


def _code_after(failure: BaseException | None, code: int) -> int:
    return code if failure is None else int(getattr(failure, "exit_code", FORCED))


class MetricsServer:
    """Serves `/metrics` with the same access rules as a scheduler. Threads `nimbus-api`, `nimbus-access`."""

    def __init__(self, server: ApiServer, access: AccessFollower) -> None:
        self._server, self._access = server, access

    def start(self) -> None:
        """Start to serve. PortInUseError, BindError: it cannot listen there."""
        self._server.start()
        self._access.start()

    def stop(self, timeout: timedelta) -> None:
        """End both threads."""
        self._access.stop(timeout)
        self._server.stop(timeout)


def build_metrics_server(resources: Resources, registry: CollectorRegistry) -> MetricsServer | None:
    """The metrics server of a standalone worker; None if it is not configured.

    Raises CertificateError: the files of `api.tls` cannot be used.
    """
    settings, session = resources.settings, resources.session
    where = settings.worker.metrics_address
    if where is None:
        return None
    host, port = where
    # Only tokens of the cluster: a worker fetches no keys of an identity provider.
    gate, tls = build_gate(settings, None, registry), build_tls(settings, registry)
    access = build_access_follower(settings, TreeAccess(calls_on(session), settings.cluster.root), gate, tls)

    def on_session(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            access.wake()  # only enqueues

    session.add_listener(on_session)
    app = create_metrics_app(registry, gate, [host, hostname(), *allowed_hosts(settings)])
    server = ApiServer(
        app, host, port, tls=None if tls is None else tls.context, keys=("worker.metrics", "worker.metrics")
    )
    return MetricsServer(server, access)


def add_sync_metrics(registry: CollectorRegistry, resources: Resources, syncer: Syncer) -> None:
    """Add the metrics of this daemon's local store."""
    SyncMetrics(
        registry,
        progress=syncer.progress,
        scrub=syncer.scrub_progress,
        disk=resources.local.disk_state,
    )


def create_metrics_app(
    registry: CollectorRegistry, gate: AccessGate, allowed_hosts: Iterable[str] = ()
) -> FastAPI:
    """Build the application. Starts nothing. `allowed_hosts` are as of `nimbus.api.app.create_app`."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(authorize)])
    install(app)
    app.add_middleware(Authenticate, gate=gate)
    app.add_middleware(CrossSiteGuard, allowed_hosts=allowed_hosts)
    app.add_middleware(AnswerHead)
    app.include_router(health.metrics_router(registry))
    return app
