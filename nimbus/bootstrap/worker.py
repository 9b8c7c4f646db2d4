"""Builds a worker, embedded or standalone."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import structlog

from blobsync import Syncer
from leader import SessionState
from nimbus.adapters.data_probe import MAX_BUCKETS
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeRegistrations
from nimbus.bootstrap.resources import (
    Resources,
    data_access,
    data_connection,
    open_bucket,
    secret_provider,
    store_file,
    zookeeper_auth,
    zookeeper_tls,
)
from nimbus.bootstrap.targets import clusters, spark_targets
from nimbus.bootstrap.telemetry import task_telemetry
from nimbus.config import Settings
from nimbus.config.load import secret_files
from nimbus.config.sections import EnvironmentSection
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.ids import WorkerId
from nimbus.java import JavaMissingError, find_java
from nimbus.scheduler.releases import LocalReleases
from nimbus.telemetry.build import release
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker.attempt.connections import Connections, open_data, storage_environment
from nimbus.worker.connect.plan import ConnectProvider
from nimbus.worker.connect.server import LocalServer, LocalServerSettings, RemoteServer
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.environments import Environments, TaskEnvironment
from nimbus.worker.host.free_room import FreeRoom
from nimbus.worker.host.task_user import find_users, refuse_readable_secrets
from nimbus.worker.settings import WorkerSettings
from nimbus.worker.worker import Worker

_log = structlog.get_logger(__name__)


def build_worker(
    resources: Resources,
    syncer: Syncer,
    registrations: TreeRegistrations,
    metrics: WorkerMetrics,
    *,
    scheduler_id: str | None,
) -> Worker:
    """A worker that ends the process if its thread fails.

    Raises TaskUserError: tasks cannot run as the users that the configuration names.
    """
    settings = resources.settings
    worker = settings.worker
    users = find_users(worker.run_as, worker.run_as_pipelines)
    refuse_readable_secrets(users, secret_files(settings, os.environ))
    targets = spark_targets(settings, os.environ)
    connections = connections_of(settings, os.environ)
    built = Worker(
        settings=WorkerSettings(
            id=WorkerId(worker.id),
            work_dir=worker.work_dir,
            data_dir=worker.data_dir,
            data=None
            if worker.data_uri is None
            else BucketPlace(worker.data_uri, worker.data_dir, partial(open_data, connections.data)),
            data_access=data_access(settings),
            open_bucket=lru_cache(MAX_BUCKETS)(partial(open_bucket, settings)),
            slots=worker.slots,
            master=worker.master,
            spark_conf=worker.spark_conf,
            executors_see=worker.executors_see,
            env=worker.env,
            java_home=lambda: find_java().java_home,
            stop_grace=worker.stop_grace,
            prepare_timeout=worker.prepare_timeout,
            keep_attempts=worker.keep_attempts,
            idle_jvms=worker.idle_jvms,
            preload=tuple(dict.fromkeys(worker.preload)),
            users=users,
            version=release(),
            connect=_connect_provider(settings),
            targets=targets,
            labels=tuple(sorted(set(worker.labels))),
            environments=find_environments(worker.environments),
            min_free=FreeRoom(memory_bytes=worker.min_free.memory, disk_bytes=worker.min_free.disk),
            secrets=secret_provider(worker.secrets, os.environ),
            secret_rules=SecretRules(worker.secrets.allow),
            telemetry=task_telemetry(settings),
            scheduler_id=scheduler_id,
            is_alone=settings.store_folder is not None,
        ),
        board=TreeAttemptBoard(calls_on(resources.session), settings.cluster.root),
        registrations=registrations,
        releases=LocalReleases(syncer),
        connections=connections,
        clock=resources.clock,
        logs=S3LogArchive(resources.store),
        metrics=metrics,
        clusters=clusters(targets, settings.spark.targets, resources.reader.schedulers, worker),
        on_failure=_end_process,
    )

    def on_session(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            built.session_renewed()  # only enqueues

    resources.session.add_listener(on_session)
    return built


def find_environments(sections: Mapping[str, EnvironmentSection]) -> Environments:
    """The environments of the configuration."""
    configured = [
        TaskEnvironment(
            name=name,
            python=section.python,
            java_home=section.java_home,
            spark_home=section.spark_home,
            env=section.env,
        )
        for name, section in sections.items()
    ]
    return Environments(configured, java_home)


def java_home() -> Path | None:
    """The folder of this host's Java; None: there is none."""
    try:
        return find_java().java_home
    except JavaMissingError:
        return None


def connections_of(settings: Settings, environment: Mapping[str, str]) -> Connections:
    """What runners and executors connect to. `environment` is that of this process."""
    return Connections(
        board=_board_connection(settings),
        logs={"kind": "s3", **settings.storage.connection()},
        data=data_connection(settings),
        environment=storage_environment(environment),
    )


def _connect_provider(settings: Settings) -> ConnectProvider:
    worker, connect = settings.worker, settings.connect
    if connect.url is not None:
        token = None if connect.token is None else connect.token.get_secret_value()
        return RemoteServer(connect.url, token)
    return LocalServer(
        LocalServerSettings(
            folder=worker.work_dir / "connect",
            master=worker.master,
            spark_conf=worker.spark_conf,
            env=worker.env,
            java_home=lambda: find_java().java_home,
            idle_timeout=connect.idle_timeout,
        )
    )


def _end_process(cause: BaseException) -> None:
    """End the process after the worker's thread failed, so that a supervisor restarts it."""
    _log.error("process_ends", because="its worker failed", error=str(cause))
    os.kill(os.getpid(), signal.SIGTERM)


def _board_connection(settings: Settings) -> dict[str, Any]:
    """As JSON: it goes to the runners."""
    if (file := store_file(settings)) is not None:
        return {"kind": "sqlite", "root": settings.cluster.root, "file": str(file)}
    return {
        "kind": "zookeeper",
        "root": settings.cluster.root,
        "hosts": settings.zookeeper.hosts,
        "session_timeout_s": settings.zookeeper.session_timeout.total_seconds(),
        "auth": zookeeper_auth(settings),
        "tls": zookeeper_tls(settings),
    }
