"""The sections of a daemon's configuration: every key, its type, its default and its purpose.

`configs/nimbus.example.yaml` describes the keys for users; a test compares its keys and defaults with these.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.alert_targets import MOST_RULES, AlertTarget, Notify
from nimbus.config.checking import Strict
from nimbus.config.oidc import Role
from nimbus.config.problems import InvalidConfigurationError, Problem
from nimbus.config.targets import Target
from nimbus.config.unclear import Flag, Number
from nimbus.config.values import (
    AbsoluteFile,
    AbsolutePath,
    Duration,
    PositiveDuration,
    SparkFolder,
    at_least,
    size_at_least,
)
from nimbus.domain.access import AccessRole
from nimbus.domain.purge_parts import Part

MemberId = Annotated[str, BeforeValidator(texts.member_id)]
Text = Annotated[str, BeforeValidator(texts.scalar)]
Url = Annotated[str, BeforeValidator(texts.url)]


class Cluster(Strict):
    """Which cluster this daemon belongs to."""

    root: Annotated[str, BeforeValidator(texts.zookeeper_path)] = "/nimbus"
    """Path in ZooKeeper of everything. Two clusters on one ZooKeeper need two roots."""


class ZooKeeper(Strict):
    """The connection to ZooKeeper."""

    hosts: Annotated[str, BeforeValidator(texts.zookeeper_hosts)]
    session_timeout: PositiveDuration = timedelta(seconds=10)
    call_timeout: PositiveDuration = timedelta(seconds=10)
    connect_timeout: PositiveDuration = timedelta(seconds=15)
    """Longest wait for a session at start-up."""
    username: str | None = None
    password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls: Flag = False
    tls_ca_file: AbsoluteFile | None = None
    tls_cert_file: AbsoluteFile | None = None
    tls_key_file: AbsoluteFile | None = None
    tls_key_password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls_verify: Literal["full", "no_hostname", "none"] = "full"
    acl: Literal["fix", "check"] = "fix"
    """Nodes with wrong access lists: a starting scheduler corrects them, or refuses to start."""


class Storage(Strict):
    """The connection to S3."""

    endpoint_url: Url | None = None
    bucket: Annotated[str, BeforeValidator(texts.bucket)]
    prefix: Annotated[str, BeforeValidator(texts.key_prefix)] = ""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    encryption: Literal["AES256", "aws:kms"] | None = None
    """Of all objects that are written; None: each write leaves it to the bucket."""
    kms_key_id: str | None = None
    connect_timeout: PositiveDuration = timedelta(seconds=3)
    read_timeout: PositiveDuration = timedelta(seconds=30)


class Scheduler(Strict):
    """This daemon's id, addresses and folder."""

    id: MemberId
    """Derived: this host's name."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8470
    advertise_url: Url
    """Derived: http://host:port."""
    allowed_hosts: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)
    """In addition to loopback, host, advertise_url, and the address of the connection."""
    state_dir: AbsolutePath
    shutdown_timeout: PositiveDuration = timedelta(seconds=30)
    validators: list[Annotated[str, BeforeValidator(texts.function_place)]] = Field(default_factory=list)
    """Functions that may refuse a definition when it is published or activated."""


class ApiTls(Strict):
    """A certificate with its chain, and its key, as PEM files; the key without a password."""

    certificate: AbsoluteFile
    key: AbsoluteFile


class Api(Strict):
    """Access to the HTTP API and the pages, and how they are served."""

    auth: Literal["optional", "required"] = "optional"
    """`optional`: a request without a token has the role admin; on loopback only."""
    tokens_file: AbsoluteFile | None = None
    """The first tokens. Read again when it changes; without the file they are invalid."""
    pipelines_may: Role = AccessRole.OPERATOR
    """What every pipeline may do with pipelines, datasets and variables of other owners without a grant."""
    requests_per_second: Annotated[int | None, Field(ge=1, le=100_000)] = 100
    """Average rate of one token, with bursts of ten times as many; None: no limit."""
    tls: ApiTls | None = None
    """None: plain HTTP, only on loopback or behind a proxy that ends TLS."""


class Leadership(Strict):
    """How this scheduler takes part in the election."""

    guard_timeout: PositiveDuration = timedelta(seconds=10)
    gate_policy: Literal["per_pipeline", "strict"] = "per_pipeline"
    forced_takeover_after: PositiveDuration = timedelta(minutes=2)
    requeue_min: PositiveDuration = timedelta(milliseconds=200)
    requeue_max: PositiveDuration = timedelta(seconds=30)
    step_down_margin: PositiveDuration = timedelta(seconds=1)
    raise_schema_after: Duration = timedelta(hours=1)
    elector: Annotated[str, BeforeValidator(texts.elector)] = "zookeeper"
    """How the leader is chosen. `single`: there is one scheduler, with its state in SQLite."""
    priority: Annotated[int, Field(ge=-1000, le=0)] = 0
    """Leads only while there is no ready scheduler with a higher priority."""
    nofailover: Flag = False
    """Never lead."""
    sentinel: Flag = True
    """Whether a separate process ends the scheduler's session when it crashes."""


class MinFree(Strict):
    """Free memory and disk below which a worker gets no new attempts. None: not checked."""

    memory: Annotated[int, size_at_least(1 << 20)] | None = None
    disk: Annotated[int, size_at_least(1 << 20)] | None = None


class Secrets(Strict):
    """The provider of the secrets that tasks name."""

    provider: Annotated[str | None, BeforeValidator(texts.secret_provider)] = None
    """`file`, `env`, `command` or `package.module:function`. None: no secrets."""
    folder: AbsolutePath | None = None
    """For `file`: the folder of the secrets."""
    command: list[Text] = Field(default_factory=list)
    """For `command`: the program and its first arguments."""
    timeout: PositiveDuration = timedelta(seconds=10)
    """For `command` and a plug-in: the limit for each secret."""
    allow: dict[str, list[Annotated[str, BeforeValidator(texts.name_pattern)]]] | None = None
    """Patterns of the pipelines that may use a secret, by its name. None: all may use all secrets."""


class Environment(Strict):
    """An interpreter with a Spark of its own, for tasks with `environment`."""

    python: AbsoluteFile
    java_home: AbsolutePath | None = None
    """None: the worker's Java."""
    spark_home: AbsolutePath | None = None
    """None: the PySpark that the interpreter has."""
    env: dict[Annotated[str, BeforeValidator(texts.variable_name)], Text] = Field(default_factory=dict)
    """Environment variables of its drivers, which override `worker.env`."""


class Worker(Strict):
    """The worker of this host."""

    embedded: Flag = True
    id: MemberId
    """Derived: scheduler.id."""
    slots: Annotated[int, Field(ge=1, le=1024)] = 2
    labels: list[Annotated[str, BeforeValidator(texts.plain_name)]] = Field(default_factory=list)
    """Labels that tasks can require with `runs_on`."""
    min_free: MinFree = Field(default_factory=MinFree)
    work_dir: SparkFolder
    """Derived: the folder `worker` in scheduler.state_dir."""
    data: Annotated[str, BeforeValidator(texts.data_place)] | None = None
    """A folder that all workers share, or `s3://bucket/prefix`. None: no worker runs here."""
    master: Annotated[str, BeforeValidator(texts.spark_master)] = "local[2]"
    executors_see: Literal["data", "host"] | None = None
    """As of a target, for executors of `master` and of `connect.url`."""
    spark_conf: dict[Annotated[str, BeforeValidator(texts.spark_key)], Text] = Field(default_factory=dict)
    env: dict[Annotated[str, BeforeValidator(texts.variable_name)], Text] = Field(default_factory=dict)
    environments: dict[Annotated[str, BeforeValidator(texts.plain_name)], Environment] = Field(
        default_factory=dict
    )
    """Environments that tasks can name."""
    secrets: Secrets = Field(default_factory=Secrets)
    prepare_timeout: PositiveDuration = timedelta(minutes=5)
    stop_grace: Duration = timedelta(seconds=10)
    keep_attempts: Duration = timedelta(hours=24)
    drain_timeout: Duration = timedelta(0)
    idle_jvms: Annotated[int, Field(ge=0, le=64)] = 2
    preload: list[Annotated[str, BeforeValidator(texts.module_name)]] = Field(
        default_factory=list, max_length=20
    )
    """Modules that are imported once for all pooled tasks."""
    run_as: Annotated[str | None, BeforeValidator(texts.user_name)] = None
    """User that tasks run as; None: the worker's own."""
    run_as_pipelines: dict[str, Annotated[str, BeforeValidator(texts.user_name)]] = Field(
        default_factory=dict
    )
    """Users of single pipelines, which override `run_as`."""
    metrics: Annotated[str, BeforeValidator(texts.listening)] | None = None
    """Address of a standalone worker's `/metrics`, as `host:port`; None: none."""

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

        Raises:
            InvalidConfigurationError: it is not set. That is allowed only where no worker runs.
        """
        if self.data_uri is not None:
            return self.work_dir / "inputs"
        if self.data is None:
            raise InvalidConfigurationError(
                [Problem(file="configuration", key="worker.data", message=NO_DATA)]
            )
        return Path(self.data)


class Connect(Strict):
    """Spark Connect: for tasks with `spark: {mode: connect}`."""

    url: Annotated[str, BeforeValidator(texts.connect_url)] | None = None
    """None: the worker starts its own server."""
    token: Annotated[SecretStr | None, Field(strict=False)] = None
    idle_timeout: PositiveDuration = timedelta(minutes=10)


class Spark(Strict):
    """Places where the Spark of tasks can run, and Spark's history server."""

    history: Url | None = None
    """Spark's history server, for links to ended applications."""
    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], Target] = Field(default_factory=dict)


class Data(Strict):
    """The bucket of `worker.data`: its connection, and what is deleted there."""

    endpoint_url: Url | None = None
    """None, here and in the next three: as in `storage`."""
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    encryption: Literal["none", "AES256", "aws:kms"] | None = None
    """None: as in `storage`, with its key; `none`: each write leaves it to the bucket."""
    kms_key_id: str | None = None
    gc: Flag = True
    """Whether the leader deletes outputs that no END names."""
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=24)


NO_DATA = (
    "is missing; name the folder, shared by all workers, or the s3://bucket/prefix, "
    "where tasks leave their outputs"
)


class Supervision(Strict):
    """How long the leader waits for silent processes before it acts."""

    claim_timeout: PositiveDuration = timedelta(minutes=10)
    beat_grace: Duration = timedelta(seconds=3)
    host_lost_after: PositiveDuration = timedelta(seconds=30)
    max_mishaps: Annotated[int, Field(ge=1, le=1000)] = 10


class Runs(Strict):
    """The limit of active runs, and how long finished runs stay in ZooKeeper."""

    keep_finished: Duration = timedelta(hours=1)
    max_running: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """In the whole cluster; further runs queue. None: no limit."""


class Retention(Strict):
    """How long parts of a run are kept after its end. None: forever."""

    logs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    outputs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    history: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    """Logs and outputs are deleted with it."""
    interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)

    def by_part(self) -> dict[Part, timedelta]:
        """The parts with a retention time, in the order of their deletion."""
        found = {Part.LOGS: self.logs, Part.OUTPUTS: self.outputs, Part.HISTORY: self.history}
        return {part: keep for part, keep in found.items() if keep is not None}


class Alerts(Strict):
    """Receivers of alerts."""

    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], AlertTarget] = Field(
        default_factory=dict
    )
    notify: Annotated[list[Notify], Field(max_length=MOST_RULES)] = Field(default_factory=list)
    """For pipelines without `notify`."""
    give_up_after: PositiveDuration = timedelta(hours=24)
    public_url: Url | None = None
    """Base of links. None: `scheduler.advertise_url` in messages, a URN of the pipeline in lineage."""


class Sync(Strict):
    """How releases are fetched to this disk and verified."""

    threads: Annotated[int, Field(ge=1, le=64)] = 4
    bandwidth_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = None
    """Limit for this process; None: no limit."""
    look_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(seconds=30)
    scrub_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(hours=1)
    scrub_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = 50_000_000
    """None: no limit."""
    digests: Literal["name", "sha256"] = "name"
    retry_max: PositiveDuration = timedelta(seconds=30)


class Artifacts(Strict):
    """Deletion of artifacts that no release in use needs: in the bucket, and on this disk."""

    gc: Flag = False
    """Whether the leader deletes in the bucket. Off by default: other clusters may publish there."""
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(hours=1))] = timedelta(hours=24)
    gc_keep_age: Annotated[timedelta, at_least(timedelta(hours=24))] = timedelta(days=14)
    gc_keep_newest: Annotated[int, Field(ge=0, le=100_000)] = 10
    gc_max_share: Annotated[Number, Field(gt=0, le=1)] = 0.2
    local_gc: Flag = True
    """Whether this daemon removes unneeded artifacts from its own disk."""
    local_gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)
    local_gc_grace: Duration = timedelta(hours=24)


class Waits(Strict):
    """What tasks of type `wait` may check."""

    http_allow: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)
    """Hosts that they may reach although these are loopback, link-local, or cloud metadata services."""


class Log(Strict):
    """The log of this process on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"
