"""Builds all parts of a scheduler and wires them together."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from blobsync import Readiness, ReplicaBoard
from leader import (
    ElectionConfig,
    ElectorSetup,
    LeaderError,
    Leadership,
    Participant,
    ZooKeeperSession,
    make_elector,
    request_switchover,
)
from leader.metrics import ElectionMetrics
from nimbus.adapters.data_probe import DataProber
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import StoreSession, calls_on
from nimbus.adapters.store.catalog import TreeCatalog
from nimbus.adapters.store.cluster import TreeAccess, TreeClusterReader, TreeCommandQueue, TreeRegistrations
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.runs import prepare
from nimbus.adapters.zookeeper.calls import ZooKeeperChanges
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.api.services import ApiServices
from nimbus.bootstrap.access import (
    allowed_hosts,
    build_access_follower,
    build_gate,
    build_grants,
    build_jwts,
    build_provider,
    build_tls,
)
from nimbus.bootstrap.alerts import alert_policy, alert_sender, alert_targets, alert_tests
from nimbus.bootstrap.collector import add_purges, build_collector, output_files
from nimbus.bootstrap.late_parts import LateParts
from nimbus.bootstrap.processes import add_sync_metrics
from nimbus.bootstrap.resources import (
    PROBE_LIMITS,
    Resources,
    build_syncer,
    data_connection,
    epoch_file,
    open_bucket,
    secret_provider,
    zookeeper_config,
)
from nimbus.bootstrap.targets import history_servers
from nimbus.bootstrap.telemetry import build_exports
from nimbus.config import Settings
from nimbus.config.settings import shown
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.engine.effects import Effects
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.ports import ChangeFeed
from nimbus.scheduler.announcer import ReplicaAnnouncer
from nimbus.scheduler.followers import CatalogFollower
from nimbus.scheduler.gateway import ClusterGateway, DataGateway
from nimbus.scheduler.health import Identity, SelfReport
from nimbus.scheduler.readiness import ReadinessGuard
from nimbus.scheduler.registrar import Registrar
from nimbus.scheduler.releases import LocalReleases, StoredReleases, Validators
from nimbus.scheduler.scheduler import Parts
from nimbus.telemetry.build import release, tell_build
from nimbus.telemetry.daemon import GarbageMetrics, ReadinessMetrics
from nimbus.telemetry.engine import EngineMetrics
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.templates.client import Templates
from nimbus.web.app import add_pages
from nimbus.worker.attempt.connections import open_data
from nimbus.worker.host.identity import host_id, hostname
from nimbus.worker.secrets import resolve

_log = structlog.get_logger(__name__)

_API_PATIENCE = timedelta(seconds=2)
"""Longest wait of a request for a connection to ZooKeeper, before it is answered with 503."""


def build_parts(resources: Resources, has_sentinel: Callable[[], bool] = lambda: False) -> Parts:
    """All parts of a scheduler, not started. `has_sentinel`: True while its crash sentinel runs."""
    settings, session, root = resources.settings, resources.session, resources.settings.cluster.root
    zookeeper = session if isinstance(session, ZooKeeperSession) else None  # None: a single scheduler
    registry = CollectorRegistry()
    tell_build(registry)
    history = S3History(resources.store)
    identity = _identity(resources)
    late = LateParts()
    targets = alert_targets(settings, os.environ)
    syncer = build_syncer(resources, late.synced)
    add_sync_metrics(registry, resources, syncer)
    late.announcer = ReplicaAnnouncer(
        board=ReplicaBoard(resources.store),
        me=identity.id,
        readiness=syncer.readiness,
        clock=resources.clock,
    )
    guard = ReadinessGuard(
        reader=resources.reader,
        readiness=syncer.readiness,
        strict=settings.leadership.gate_policy == "strict",
        on_lacking=late.quarantine,
    )
    releases = LocalReleases(
        syncer, Validators(settings.scheduler.validators), SecretRules(settings.worker.secrets.allow)
    )
    exports = build_exports(resources, releases, registry, leads=late.leads)

    def resign(reason: str, to: str) -> None:
        """Any thread; with a named successor it calls ZooKeeper."""
        leadership = late.election.leadership()
        if to and leadership is not None and zookeeper is not None:
            try:
                request_switchover(zookeeper, root, to, reason, epoch=leadership.epoch)
            except LeaderError as exc:
                _log.warning("switchover_failed", to=to, error=str(exc))  # then the next in the queue leads
            else:
                return
        late.election.abdicate(reason)

    registrations = TreeRegistrations(calls_on(session), root)
    outputs = output_files(settings, registrations.data_mark)

    def open_file(reference: str, path: str) -> Iterator[bytes] | None:
        file = outputs.opened(reference, path)
        return None if file is None else file.pieces

    effects = Effects(
        read_run=resources.reader.run,
        read_slots=resources.reader.slots,
        history=history,
        preparer=releases,
        definitions=releases,
        renderer=Templates(),
        prepare_run=prepare,
        open_file=open_file,
        probe=DataProber(
            open_bucket=partial(open_bucket, settings, **PROBE_LIMITS), http_allow=settings.waits.http_allow
        ).probe,
        sender=alert_sender(settings, targets, leads_in=late.leads_in, enqueue=late.enqueue),
        exports=exports,
        resign=resign,
        enqueue=late.enqueue,
    )

    def store_for(leadership: Leadership) -> TreeLeaderStore:
        token = leadership.token
        if not isinstance(session, ZooKeeperSession):
            from nimbus.adapters.sqlite.calls import begin_term

            token = begin_term(session, token)
        return TreeLeaderStore(calls_on(session), root, token)

    late.engine = Engine(
        store_for=store_for,
        still_leads=late.leads,
        start_effect=effects.start,
        policy=_policy(settings),
        clock=resources.clock,
        metrics=EngineMetrics(registry, late.leads),
        on_status=late.changed,
        follow=None if exports is None else exports.follow,
    )
    election_metrics = ElectionMetrics(registry)
    late.election = make_elector(
        settings.leadership.elector,
        ElectorSetup(
            session=zookeeper,
            epoch_file=epoch_file(settings),
            config=_election_config(settings),
            participant=_participant(settings, identity),
            guard=guard,
            electable=late.engine,
            journal=election_metrics,
        ),
    )
    election_metrics.watch(late.election)
    follower = CatalogFollower(TreeCatalog(calls_on(session), root), syncer.want, late.changed)
    report = SelfReport(
        identity=identity,
        election=late.election,
        engine_status=late.engine_status,
        required=lambda: follower.required,
        readiness=syncer.readiness,
        progress=syncer.progress,
        store_trouble=partial(_store_trouble, session),
        has_sentinel=has_sentinel,
        id_taken=late.id_taken,
        store="sqlite" if zookeeper is None else "zookeeper",
        storage_trouble=lambda: _storage_trouble(syncer.readiness()),
        disk_trouble=lambda: resources.local.disk_state().reason,
        clock=resources.clock,
    )
    late.registrar = Registrar(
        registrations=registrations,
        info=report.info,
        publish_readiness=late.publish_readiness,
        quarantine=late.quarantine,
        stand=late.stand,
        metrics=ReadinessMetrics(registry),
    )
    jwts = build_jwts(settings)
    gate, tls = build_gate(settings, jwts, registry), build_tls(settings, registry)
    calls = calls_on(session, _API_PATIENCE)
    reader = TreeClusterReader(calls, root)
    provider = secret_provider(settings.worker.secrets, os.environ)
    api = create_app(
        services := ApiServices(
            reader=reader,
            definitions=releases,
            commands=TreeCommandQueue(calls, root),
            history=history,
            logs=S3LogArchive(resources.store),
            health=report,
            metrics=registry,
            clock=resources.clock,
            releases=StoredReleases(resources.store, resources.local),
            changes=_changes(resources),
            max_running=settings.runs.max_running,
            timings=_timings(settings),
            session_timeout=None if zookeeper is None else settings.zookeeper.session_timeout,
            hook_secret=None if provider is None else lambda name: resolve({name: name}, provider)[name],
            gateway=ClusterGateway(
                board=TreeAttemptBoard(calls, root),
                logs=S3LogArchive(resources.store),
                releases=releases,
                clock=resources.clock,
                schedulers=lambda: [scheduler.address for scheduler in reader.schedulers()],
                data=None
                if settings.worker.data_uri is None
                else DataGateway(settings.worker.data_uri, open_data(data_connection(settings))),
                secrets=partial(resolve, provider=provider),
                rules=SecretRules(settings.worker.secrets.allow),
            ),
            outputs=outputs,
            spark_history=history_servers(settings),
            alerts=alert_tests(settings, targets),
            gate=gate,
            provider=build_provider(settings, jwts, registry),
            browser_login=settings.oidc.client_id is not None,
            redirect_uri=settings.oidc.redirect_uri,
            settings=tuple(shown(settings)),
        ),
        allowed_hosts=allowed_hosts(settings),
    )
    add_pages(api, services)
    garbage = GarbageMetrics(registry)
    collector = build_collector(resources, garbage, leads=late.leads)
    add_purges(collector, resources, garbage, late.leads, registrations.data_mark)
    worker = None
    if settings.worker.embedded:
        from nimbus.bootstrap.worker import build_worker  # a scheduler without a worker needs less memory

        metrics = WorkerMetrics(registry)
        worker = build_worker(resources, syncer, registrations, metrics, scheduler_id=identity.id)
    return Parts(
        session=session,
        syncer=syncer,
        follower=follower,
        access=build_access_follower(settings, TreeAccess(calls_on(session), root), gate, tls),
        registrar=late.registrar,
        announcer=late.announcer,
        engine=late.engine,
        effects=effects,
        election=late.election,
        collector=collector,
        api=ApiServer(
            api,
            settings.scheduler.host,
            settings.scheduler.port,
            tls=None if tls is None else tls.context,
        ),
        worker=worker,
    )


def _changes(resources: Resources) -> ChangeFeed:
    settings, session = resources.settings, resources.session
    if not isinstance(session, ZooKeeperSession):
        from nimbus.adapters.sqlite.calls import SqliteChanges

        return SqliteChanges(session, settings.cluster.root)

    def connect() -> ZooKeeperSession:
        own = ZooKeeperSession(zookeeper_config(settings))
        own.start(settings.zookeeper.call_timeout)
        return own

    return ZooKeeperChanges(connect, settings.cluster.root, lambda: session.last_zxid)


def _identity(resources: Resources) -> Identity:
    settings = resources.settings
    settings.scheduler.state_dir.mkdir(parents=True, exist_ok=True)
    return Identity(
        id=settings.scheduler.id,
        boot_id=secrets.token_hex(8),
        host=host_id(),
        hostname=hostname(),
        address=settings.scheduler.advertise_url,
        version=release(),
        started_at=resources.clock.now(),
        state_dir=settings.scheduler.state_dir,
    )


def _participant(settings: Settings, identity: Identity) -> Participant:
    """The participant with the address at which others reach this scheduler."""
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
        forced_takeover_after=leadership.forced_takeover_after,
        priority=leadership.priority,
        nofailover=leadership.nofailover,
        newest_schema=NEWEST_SCHEMA,
        mend_access_lists=settings.zookeeper.acl == "fix",
    )


def _timings(settings: Settings) -> Timings:
    supervision = settings.supervision
    return Timings(
        claim_timeout=supervision.claim_timeout,
        beat_grace=supervision.beat_grace,
        host_lost_after=supervision.host_lost_after,
    )


def _policy(settings: Settings) -> Policy:
    return Policy(
        timings=_timings(settings),
        max_infrastructure_failures=settings.supervision.max_mishaps,
        keep_finished=settings.runs.keep_finished,
        max_running=settings.runs.max_running,
        raise_schema_after=settings.leadership.raise_schema_after,
        alerts=alert_policy(settings),
        grants=build_grants(settings),
        pipelines_may=settings.api.pipelines_may,
    )


def _store_trouble(session: StoreSession) -> str:
    """Why the live state cannot be used now; empty: it can."""
    if not isinstance(session, ZooKeeperSession):
        return session.trouble
    return "" if session.is_connected else "no connection to zookeeper"


def _storage_trouble(readiness: Readiness) -> str:
    """The syncer's last error of S3, if it waits for S3."""
    return next(
        (release.reason for release in readiness.releases.values() if release.state == "unavailable"), ""
    )
