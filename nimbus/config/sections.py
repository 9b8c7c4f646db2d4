"""The sections of a daemon's configuration: every key, its type and its default.

`configs/nimbus.example.yaml` says what each key is for; a test compares its keys and defaults with these.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.checking import Strict
from nimbus.config.problems import InvalidConfigurationError, Problem
from nimbus.config.services import MAX_RULES, AlertTargetSection, Notify, Role
from nimbus.config.targets import TargetSection
from nimbus.config.values import (
    AbsoluteFile,
    AbsolutePath,
    Duration,
    Flag,
    Number,
    PositiveDuration,
    SparkFolder,
    at_least,
    size_at_least,
)
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.runs.run import RunPart

MemberId = Annotated[str, BeforeValidator(texts.member_id)]
Text = Annotated[str, BeforeValidator(texts.scalar)]
Url = Annotated[str, BeforeValidator(texts.url)]


class ClusterSection(Strict):
    """Which cluster this daemon belongs to."""

    root: Annotated[str, BeforeValidator(texts.zookeeper_path)] = "/nimbus"


class ZooKeeperSection(Strict):
    """The connection to ZooKeeper."""

    hosts: Annotated[str, BeforeValidator(texts.zookeeper_hosts)]
    session_timeout: PositiveDuration = timedelta(seconds=10)
    call_timeout: PositiveDuration = timedelta(seconds=10)
    connect_timeout: PositiveDuration = timedelta(seconds=15)
    username: str | None = None
    password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls: Flag = False
    tls_ca_file: AbsoluteFile | None = None
    tls_cert_file: AbsoluteFile | None = None
    tls_key_file: AbsoluteFile | None = None
    tls_key_password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls_verify: Literal["full", "no_hostname", "none"] = "full"
    acl: Literal["fix", "check"] = "fix"


class StorageSection(Strict):
    """The connection to S3."""

    endpoint_url: Url | None = None
    bucket: Annotated[str, BeforeValidator(texts.bucket)]
    prefix: Annotated[str, BeforeValidator(texts.key_prefix)] = ""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key_id: str | None = None
    connect_timeout: PositiveDuration = timedelta(seconds=3)
    read_timeout: PositiveDuration = timedelta(seconds=30)

    def connection(self) -> dict[str, Any]:
        """The connection as JSON values: fields of `blobsync.S3Config`, with the secret in plain text."""
        names = ("endpoint_url", "bucket", "prefix", "region", "access_key_id", "encryption", "kms_key_id")
        secret = self.secret_access_key
        return {name: getattr(self, name) for name in names} | {
            "secret_access_key": None if secret is None else secret.get_secret_value()
        }


class SchedulerSection(Strict):
    """This daemon's id, addresses and folder."""

    id: MemberId
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8470
    advertise_url: Url
    allowed_hosts: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)
    state_dir: AbsolutePath
    shutdown_timeout: PositiveDuration = timedelta(seconds=30)
    validators: list[Annotated[str, BeforeValidator(texts.function_place)]] = Field(default_factory=list)


class ApiTlsSection(Strict):
    """A certificate with its chain, and its key, as PEM files; the key without a password."""

    certificate: AbsoluteFile
    key: AbsoluteFile


class ApiSection(Strict):
    """Access to the HTTP API and the pages, and how they are served."""

    auth: Literal["optional", "required"] = "optional"
    tokens_file: AbsoluteFile | None = None
    pipelines_may: Role = AccessRole.OPERATOR
    requests_per_second: Annotated[int | None, Field(ge=1, le=100_000)] = 100
    tls: ApiTlsSection | None = None


class LeadershipSection(Strict):
    """How this scheduler takes part in the election."""

    guard_timeout: PositiveDuration = timedelta(seconds=10)
    gate_policy: Literal["per_pipeline", "strict"] = "per_pipeline"
    forced_takeover_after: PositiveDuration = timedelta(minutes=2)
    requeue_min: PositiveDuration = timedelta(milliseconds=200)
    requeue_max: PositiveDuration = timedelta(seconds=30)
    step_down_margin: PositiveDuration = timedelta(seconds=1)
    raise_schema_after: Duration = timedelta(hours=1)
    elector: Annotated[str, BeforeValidator(texts.elector)] = "zookeeper"
    priority: Annotated[int, Field(ge=-1000, le=0)] = 0
    nofailover: Flag = False
    sentinel: Flag = True


class MinFreeSection(Strict):
    """Free memory and disk below which a worker gets no new attempts. None: not checked."""

    memory: Annotated[int, size_at_least(1 << 20)] | None = None
    disk: Annotated[int, size_at_least(1 << 20)] | None = None


class SecretsSection(Strict):
    """The provider of the secrets that tasks name."""

    provider: Annotated[str | None, BeforeValidator(texts.secret_provider)] = None
    folder: AbsolutePath | None = None
    command: list[Text] = Field(default_factory=list)
    timeout: PositiveDuration = timedelta(seconds=10)
    allow: dict[str, list[Annotated[str, BeforeValidator(texts.name_pattern)]]] | None = None


class EnvironmentSection(Strict):
    """An interpreter with a Spark of its own, for tasks with `environment`."""

    python: AbsoluteFile
    java_home: AbsolutePath | None = None
    spark_home: AbsolutePath | None = None
    env: dict[Annotated[str, BeforeValidator(texts.variable_name)], Text] = Field(default_factory=dict)


class WorkerSection(Strict):
    """The worker of this host."""

    embedded: Flag = True
    id: MemberId
    slots: Annotated[int, Field(ge=1, le=1024)] = 2
    labels: list[Annotated[str, BeforeValidator(texts.plain_name)]] = Field(default_factory=list)
    min_free: MinFreeSection = Field(default_factory=MinFreeSection)
    work_dir: SparkFolder
    data: Annotated[str, BeforeValidator(texts.data_place)] | None = None
    master: Annotated[str, BeforeValidator(texts.spark_master)] = "local[2]"
    executors_see: Literal["data", "host"] | None = None
    spark_conf: dict[Annotated[str, BeforeValidator(texts.spark_key)], Text] = Field(default_factory=dict)
    env: dict[Annotated[str, BeforeValidator(texts.variable_name)], Text] = Field(default_factory=dict)
    environments: dict[Annotated[str, BeforeValidator(texts.plain_name)], EnvironmentSection] = Field(
        default_factory=dict
    )
    secrets: SecretsSection = Field(default_factory=SecretsSection)
    prepare_timeout: PositiveDuration = timedelta(minutes=5)
    stop_grace: Duration = timedelta(seconds=10)
    keep_attempts: Duration = timedelta(hours=24)
    drain_timeout: Duration = timedelta(0)
    idle_jvms: Annotated[int, Field(ge=0, le=64)] = 2
    preload: list[Annotated[str, BeforeValidator(texts.module_name)]] = Field(
        default_factory=list, max_length=20
    )
    run_as: Annotated[str | None, BeforeValidator(texts.user_name)] = None
    run_as_pipelines: dict[str, Annotated[str, BeforeValidator(texts.user_name)]] = Field(
        default_factory=dict
    )
    metrics: Annotated[str, BeforeValidator(texts.listening)] | None = None

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of `metrics`; an IPv6 address has no brackets."""
        if self.metrics is None:
            return None
        host, _, port = self.metrics.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def data_uri(self) -> str | None:
        """`s3://bucket/prefix`, if outputs are stored in a bucket."""
        return self.data if self.data is not None and self.data.startswith("s3://") else None

    @property
    def data_dir(self) -> Path:
        """The folder that all workers share; with `data_uri` this worker's folder for copies of inputs.

        Raises InvalidConfigurationError: it is not set. That is allowed only where no worker runs.
        """
        if self.data_uri is not None:
            return self.work_dir / "inputs"
        if self.data is None:
            raise InvalidConfigurationError(
                [Problem(file="configuration", key="worker.data", message=NO_DATA)]
            )
        return Path(self.data)


class ConnectSection(Strict):
    """Spark Connect: for tasks with `spark: {mode: connect}`."""

    url: Annotated[str, BeforeValidator(texts.connect_url)] | None = None
    token: Annotated[SecretStr | None, Field(strict=False)] = None
    idle_timeout: PositiveDuration = timedelta(minutes=10)


class SparkSection(Strict):
    """Places where the Spark of tasks can run, and Spark's history server."""

    history: Url | None = None
    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], TargetSection] = Field(
        default_factory=dict
    )


class DataSection(Strict):
    """The bucket of `worker.data`: its connection, and what is deleted there."""

    endpoint_url: Url | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    encryption: Literal["none", "AES256", "aws:kms"] | None = None
    kms_key_id: str | None = None
    gc: Flag = True
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=24)


NO_DATA = (
    "is missing; name the folder, shared by all workers, or the s3://bucket/prefix, "
    "where tasks leave their outputs"
)


class SupervisionSection(Strict):
    """How long the leader waits for silent processes before it acts."""

    claim_timeout: PositiveDuration = timedelta(minutes=10)
    beat_grace: Duration = timedelta(seconds=3)
    host_lost_after: PositiveDuration = timedelta(seconds=30)
    max_mishaps: Annotated[int, Field(ge=1, le=1000)] = 10


class RunsSection(Strict):
    """The limit of active runs, and how long finished runs stay in ZooKeeper."""

    keep_finished: Duration = timedelta(hours=1)
    max_running: Annotated[int | None, Field(ge=1, le=1_000_000)] = None


class RetentionSection(Strict):
    """How long parts of a run are kept after its end. None: forever."""

    logs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    outputs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    history: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)

    def by_part(self) -> dict[RunPart, timedelta]:
        """The parts with a retention time, in the order of their deletion."""
        limits = {RunPart.LOGS: self.logs, RunPart.OUTPUTS: self.outputs, RunPart.HISTORY: self.history}
        return {part: keep for part, keep in limits.items() if keep is not None}


class AlertsSection(Strict):
    """Receivers of alerts."""

    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], AlertTargetSection] = Field(
        default_factory=dict
    )
    notify: Annotated[list[Notify], Field(max_length=MAX_RULES)] = Field(default_factory=list)
    give_up_after: PositiveDuration = timedelta(hours=24)
    public_url: Url | None = None


class SyncSection(Strict):
    """How releases are fetched to this disk and verified."""

    threads: Annotated[int, Field(ge=1, le=64)] = 4
    bandwidth_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = None
    look_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(seconds=30)
    scrub_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(hours=1)
    scrub_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = 50_000_000
    digests: Literal["name", "sha256"] = "name"
    retry_max: PositiveDuration = timedelta(seconds=30)


class ArtifactsSection(Strict):
    """Deletion of artifacts that no release in use needs: in the bucket, and on this disk."""

    gc: Flag = False
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(hours=1))] = timedelta(hours=24)
    gc_keep_age: Annotated[timedelta, at_least(timedelta(hours=24))] = timedelta(days=14)
    gc_keep_newest: Annotated[int, Field(ge=0, le=100_000)] = 10
    gc_max_share: Annotated[Number, Field(gt=0, le=1)] = 0.2
    local_gc: Flag = True
    local_gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)
    local_gc_grace: Duration = timedelta(hours=24)


class WaitsSection(Strict):
    """What tasks of type `wait` may check."""

    http_allow: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)


class LogSection(Strict):
    """The log of this process on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"
