"""The resources of a daemon: settings, clock, ZooKeeper or SQLite, S3, the disk, secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from blobsync import (
    BucketAccessDeniedError,
    BucketUnavailableError,
    LocalStore,
    Readiness,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Syncer,
)
from leader import TlsConfig, ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.store.calls import StoreSession, calls_on
from nimbus.adapters.store.cluster import TreeClusterReader
from nimbus.adapters.store.tree import ClusterTree
from nimbus.config import Settings
from nimbus.config.sections import SecretsSection
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run
from nimbus.worker.secrets import (
    CommandProvider,
    EnvironmentProvider,
    FolderProvider,
    PlugIn,
    Provider,
    SecretError,
    plugged_in,
)


class SystemClock:
    """See `nimbus.ports.Clock`."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC."""
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        """CLOCK_BOOTTIME: unlike CLOCK_MONOTONIC it continues while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


_PROBE_TIMEOUT = timedelta(seconds=5)
PROBE_LIMITS: dict[str, Any] = {
    "connect_timeout": _PROBE_TIMEOUT,
    "read_timeout": _PROBE_TIMEOUT,
    "max_attempts": 1,
}
"""Limits of a check for an object that tasks wait for."""
OTHER_CONNECTIONS = 20
"""Connections to storage in addition to downloads: checks, a collection, logs, history, the API."""

_log = structlog.get_logger(__name__)


class StorageRefusedError(NimbusError):
    """S3 refuses our credentials, so the daemon does not start."""

    code = "storage_refused"
    exit_code = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The common base of a daemon."""

    settings: Settings
    clock: SystemClock
    session: StoreSession
    store: S3ObjectStore
    local: LocalStore
    reader: TreeClusterReader

    def run(self, run: RunId) -> Run | None:
        """A run, live or in history. Read in this order, because it may move in between."""
        return self.reader.run(run) or S3History(self.store).read(run)


def open_resources(settings: Settings) -> Resources:
    """Connect to S3, and to ZooKeeper or SQLite.

    Raises:
        StorageRefusedError: the credentials are wrong.
        LeaderError: ZooKeeper does not answer, or refuses us.
        nimbus.ports.StoreUnavailableError: the database of a single scheduler cannot be opened.
        ClusterUnfinishedError: a command that creates or removes the cluster has not ended.
        StoreDeniedError: ZooKeeper's access lists forbid this process to write: a wrong credential.
    """
    store = S3ObjectStore(s3_config(settings))
    try:
        store.check()
    except BucketUnavailableError as exc:
        # A scheduler with all files can lead without S3, so it starts.
        _log.warning("storage_unreachable", error=str(exc))
    except BucketAccessDeniedError as exc:
        raise StorageRefusedError(str(exc)) from exc
    session = open_session(settings)
    try:
        tree = ClusterTree(session, settings.cluster.root)
        tree.check_finished()
        if isinstance(session, ZooKeeperSession):
            tree.prove_access()
    except NimbusError:
        session.close(settings.zookeeper.call_timeout)
        raise
    return Resources(
        settings=settings,
        clock=SystemClock(),
        session=session,
        store=store,
        local=LocalStore(settings.scheduler.state_dir / "blobs", verify=settings.sync.digests),
        reader=TreeClusterReader(calls_on(session), settings.cluster.root),
    )


def open_session(settings: Settings) -> StoreSession:
    """Connect to the store of the live state. Errors as of `open_resources`."""
    if (file := store_file(settings)) is not None:
        from nimbus.adapters.sqlite.session import SqliteSession

        single = SqliteSession(file, settings.zookeeper.call_timeout)
        single.start()
        return single
    session = ZooKeeperSession(zookeeper_config(settings))
    session.start(settings.zookeeper.connect_timeout)
    return session


def store_file(settings: Settings) -> Path | None:
    """The database of a single scheduler; None: the state is in ZooKeeper."""
    folder = settings.store_folder
    return None if folder is None else folder / "state.db"


def epoch_file(settings: Settings) -> Path | None:
    """The epoch file of a single scheduler, whose lock excludes a second one; None: with ZooKeeper."""
    folder = settings.store_folder
    return None if folder is None else folder / "epoch"


def build_syncer(resources: Resources, changed: Callable[[Readiness], None]) -> Syncer:
    """The syncer of this daemon's own local store. `changed` only enqueues."""
    settings, sync = resources.settings, resources.settings.sync
    return Syncer(
        resources.store,
        resources.local,
        retry=retry_policy(settings),
        on_change=changed,
        scrub_interval=sync.scrub_interval,
        scrub_bytes_per_s=sync.scrub_bytes_per_s,
        look_interval=sync.look_interval,
        threads=sync.threads,
        bandwidth_bytes_per_s=sync.bandwidth_bytes_per_s,
    )


def retry_policy(settings: Settings) -> RetryPolicy:
    """Retries of requests to storage."""
    return RetryPolicy(max_wait=settings.sync.retry_max)


def s3_config(settings: Settings) -> S3Config:
    """The connection to S3."""
    storage = settings.storage
    return S3Config(
        **storage.connection(),
        connect_timeout=storage.connect_timeout,
        read_timeout=storage.read_timeout,
        max_connections=settings.sync.threads + OTHER_CONNECTIONS,
    )


def data_connection(settings: Settings) -> dict[str, Any] | None:
    """The connection of the bucket of outputs as JSON, for runners. None: outputs are in a folder."""
    if settings.worker.data_uri is None:
        return None
    bucket, _, prefix = settings.worker.data_uri.removeprefix("s3://").partition("/")
    return {"kind": "s3", **_data_place(settings, bucket, prefix)}


def _data_place(settings: Settings, bucket: str, prefix: str = "") -> dict[str, Any]:
    """A place in a bucket of data, as fields of `blobsync.S3Config`: by `data`, or else by `storage`."""
    storage, data = settings.storage, settings.data
    keys = data if data.access_key_id is not None else storage
    secret = keys.secret_access_key
    encrypts = data if data.encryption is not None else storage
    return {
        "endpoint_url": data.endpoint_url or storage.endpoint_url,
        "bucket": bucket,
        "prefix": prefix,
        "region": data.region or storage.region,
        "access_key_id": keys.access_key_id,
        "secret_access_key": None if secret is None else secret.get_secret_value(),
        "encryption": None if encrypts.encryption == "none" else encrypts.encryption,
        "kms_key_id": encrypts.kms_key_id,
    }


def open_bucket(settings: Settings, bucket: str, /, **limits: Any) -> S3ObjectStore:
    """A bucket with data that no task made. `limits`: others than those of `blobsync.S3Config`."""
    return S3ObjectStore(S3Config(**_data_place(settings, bucket), **limits))


def data_access(settings: Settings) -> dict[str, str]:
    """The connection for tasks. It contains keys only from the section `data`, never those of `storage`."""
    where = data_connection(settings)
    if where is None:
        return {}
    names = ["endpoint_url", "region", "encryption", "kms_key_id"]
    if settings.data.access_key_id is not None:
        names += ["access_key_id", "secret_access_key"]
    return {name: where[name] for name in names if where[name] is not None}


def zookeeper_config(settings: Settings) -> ZooKeeperConfig:
    """The connection to ZooKeeper."""
    zookeeper = settings.zookeeper
    return ZooKeeperConfig(
        hosts=zookeeper.hosts,
        session_timeout=zookeeper.session_timeout,
        call_timeout=zookeeper.call_timeout,
        auth=zookeeper_auth(settings),
        tls=None if (files := zookeeper_tls(settings)) is None else TlsConfig(**files),
    )


def zookeeper_tls(settings: Settings) -> dict[str, Any] | None:
    """Fields of `leader.TlsConfig` as JSON values; None: no TLS."""
    zookeeper = settings.zookeeper
    if not zookeeper.tls:
        return None
    files = {
        "ca_file": zookeeper.tls_ca_file,
        "cert_file": zookeeper.tls_cert_file,
        "key_file": zookeeper.tls_key_file,
    }
    password = zookeeper.tls_key_password
    return {
        **{name: None if file is None else str(file) for name, file in files.items()},
        "key_password": None if password is None else password.get_secret_value(),
        "verify_hostname": zookeeper.tls_verify == "full",
        "verify_certificate": zookeeper.tls_verify != "none",
    }


def zookeeper_auth(settings: Settings) -> tuple[str, str] | None:
    """Scheme and credential, if there is one."""
    zookeeper = settings.zookeeper
    if zookeeper.username is None or zookeeper.password is None:
        return None
    return ("digest", f"{zookeeper.username}:{zookeeper.password.get_secret_value()}")


def secret_provider(section: SecretsSection, environment: Mapping[str, str]) -> Provider | None:
    """The worker's provider of secrets.

    Raises SecretError: a plug-in cannot be created, or a key of the provider is missing.
    """
    match section.provider:
        case None:
            return None
        case "file":
            if section.folder is None:
                raise SecretError("worker.secrets.provider is file: worker.secrets.folder is missing")
            return FolderProvider(section.folder)
        case "env":
            return EnvironmentProvider(dict(environment))
        case "command":
            if not section.command:
                raise SecretError("worker.secrets.provider is command: worker.secrets.command is missing")
            return CommandProvider(tuple(section.command), section.timeout)
        case place:
            return PlugIn(plugged_in(place), section.timeout)
