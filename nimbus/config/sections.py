"""The sections of a daemon's configuration: every key, its type, its default, and what it is for.

The descriptions are for people: `configs/nimbus.example.yaml` is held to these keys and defaults by a test.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.alert_targets import MOST_RULES, AlertTarget, Notify
from nimbus.config.checking import Strict
from nimbus.config.problems import InvalidConfigurationError, Problem
from nimbus.config.targets import Target
from nimbus.config.values import (
    AbsoluteFile,
    AbsolutePath,
    Duration,
    PositiveDuration,
    at_least,
    size_at_least,
)
from nimbus.domain.purge_parts import Part

MemberId = Annotated[str, BeforeValidator(texts.member_id)]
Text = Annotated[str, BeforeValidator(texts.scalar)]
Url = Annotated[str, BeforeValidator(texts.url)]


class Cluster(Strict):
    """Which cluster this daemon belongs to."""

    root: Annotated[str, BeforeValidator(texts.zookeeper_path)] = "/nimbus"
    """Path in ZooKeeper below which everything lies. Two clusters on one ZooKeeper have two roots."""


class ZooKeeper(Strict):
    """How ZooKeeper is reached."""

    hosts: Annotated[str, BeforeValidator(texts.zookeeper_hosts)]
    session_timeout: PositiveDuration = timedelta(seconds=10)
    call_timeout: PositiveDuration = timedelta(seconds=10)
    connect_timeout: PositiveDuration = timedelta(seconds=15)
    """How long start-up waits for a session."""
    username: str | None = None
    password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls: bool = False
    tls_ca_file: AbsoluteFile | None = None
    tls_cert_file: AbsoluteFile | None = None
    tls_key_file: AbsoluteFile | None = None
    tls_key_password: Annotated[SecretStr | None, Field(strict=False)] = None
    tls_verify: Literal["full", "no_hostname", "none"] = "full"
    acl: Literal["fix", "check"] = "fix"
    """Of nodes that are not closed as they should be: a scheduler closes them, or does not start."""


class Storage(Strict):
    """How S3 is reached."""

    endpoint_url: Url | None = None
    bucket: Annotated[str, BeforeValidator(texts.bucket)]
    prefix: Annotated[str, BeforeValidator(texts.key_prefix)] = ""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    connect_timeout: PositiveDuration = timedelta(seconds=3)
    read_timeout: PositiveDuration = timedelta(seconds=30)


class Scheduler(Strict):
    """This daemon's own place."""

    id: MemberId
    """Derived: this host's name."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8470
    advertise_url: Url
    """Derived: http://host:port."""
    allowed_hosts: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)
    """Beside loopback, host, advertise_url, and the address that a connection arrives at."""
    state_dir: AbsolutePath
    shutdown_timeout: PositiveDuration = timedelta(seconds=30)
    validators: list[Annotated[str, BeforeValidator(texts.function_place)]] = Field(default_factory=list)
    """Functions that may refuse a definition when it is published or activated."""


class ApiTls(Strict):
    """A certificate with its chain, and its key, as PEM files; the key without a password."""

    certificate: AbsoluteFile
    key: AbsoluteFile


class Api(Strict):
    """Who may use the HTTP API and the pages, and how it is served."""

    auth: Literal["optional", "required"] = "optional"
    """`optional`: a request without a token is an admin's. On loopback only."""
    tokens_file: AbsoluteFile | None = None
    """The first tokens; read again when it changes, and gone with the file."""
    requests_per_second: Annotated[int | None, Field(ge=1, le=100_000)] = 100
    """Of one token, with ten times as many at once; None: any number."""
    tls: ApiTls | None = None
    """None: plain HTTP. On loopback, or behind a proxy that ends TLS, only."""


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
    """Who chooses the leader. `single`: there is one scheduler, with its state in SQLite."""
    priority: Annotated[int, Field(ge=-1000, le=0)] = 0
    """Below 0: leads only while no ready scheduler with a higher one is there."""
    nofailover: bool = False
    """Never lead."""
    sentinel: bool = True
    """Whether a small program beside the scheduler ends its session when it crashes."""


class MinFree(Strict):
    """What a host must have free, or its worker takes nothing new. None: it is not looked at."""

    memory: Annotated[int, size_at_least(1 << 20)] | None = None
    disk: Annotated[int, size_at_least(1 << 20)] | None = None


class Secrets(Strict):
    """Where the worker finds the secrets that tasks name."""

    provider: Annotated[str | None, BeforeValidator(texts.secret_provider)] = None
    """`file`, `env`, `command` or `package.module:function`. None: there are none."""
    folder: AbsolutePath | None = None
    """Of `file`."""
    command: list[Text] = Field(default_factory=list)
    """Of `command`."""
    timeout: PositiveDuration = timedelta(seconds=10)
    """Of `command` and of a plug-in, for each secret."""


class Worker(Strict):
    """The worker of this host."""

    embedded: bool = True
    id: MemberId
    """Derived: scheduler.id."""
    slots: Annotated[int, Field(ge=1, le=1024)] = 2
    labels: list[Annotated[str, BeforeValidator(texts.plain_name)]] = Field(default_factory=list)
    """What tasks can ask for with `runs_on`."""
    min_free: MinFree = Field(default_factory=MinFree)
    work_dir: AbsolutePath
    """Derived: the folder `worker` in scheduler.state_dir."""
    data: Annotated[str, BeforeValidator(texts.data_place)] | None = None
    """A folder that all workers share, or `s3://bucket/prefix`. None: `data_dir` says it."""
    shared_dir: Annotated[AbsolutePath | None, Field(alias="data_dir")] = None
    """What the key `data_dir` says: `data` under its former name, for a folder."""
    master: Annotated[str, BeforeValidator(texts.spark_master)] = "local[2]"
    spark_conf: dict[Annotated[str, BeforeValidator(texts.spark_key)], Text] = Field(default_factory=dict)
    env: dict[Annotated[str, BeforeValidator(texts.variable_name)], Text] = Field(default_factory=dict)
    secrets: Secrets = Field(default_factory=Secrets)
    prepare_timeout: PositiveDuration = timedelta(minutes=5)
    stop_grace: Duration = timedelta(seconds=10)
    keep_attempts: Duration = timedelta(hours=24)
    class_archive: bool = True
    class_archive_dir: AbsolutePath | None = None
    """None: work_dir."""
    warm_drivers: Annotated[int, Field(ge=0, le=64)] = 1
    run_as: Annotated[str | None, BeforeValidator(texts.user_name)] = None
    """User that tasks run as; None: the worker's own."""
    run_as_pipelines: dict[str, Annotated[str, BeforeValidator(texts.user_name)]] = Field(
        default_factory=dict
    )
    """The same for single pipelines, which win over `run_as`."""
    metrics: Annotated[str, BeforeValidator(texts.listening)] | None = None
    """Where a worker of its own answers `/metrics`, as `host:port`; None: nowhere."""

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host, an IPv6 address without brackets, and port of `metrics`."""
        if self.metrics is None:
            return None
        host, _, port = self.metrics.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def data_uri(self) -> str | None:
        """`s3://bucket/prefix`, if outputs are kept in a bucket."""
        return self.data if self.data is not None and self.data.startswith("s3://") else None

    @property
    def data_dir(self) -> Path:
        """The folder that all workers share; with `data_uri` this worker's own, for copies of inputs.

        Raises:
            InvalidConfigurationError: it is not set. That is allowed only where no worker runs.
        """
        if self.data_uri is not None:
            return self.work_dir / "inputs"
        folder = self.shared_dir if self.data is None else Path(self.data)
        if folder is None:
            raise InvalidConfigurationError(
                [Problem(file="configuration", key="worker.data", message=NO_DATA)]
            )
        return folder


class Connect(Strict):
    """Spark Connect: for tasks with `spark: {mode: connect}`."""

    url: Annotated[str, BeforeValidator(texts.connect_url)] | None = None
    """None: a server of the worker's own."""
    token: Annotated[SecretStr | None, Field(strict=False)] = None
    idle_timeout: PositiveDuration = timedelta(minutes=10)


class Spark(Strict):
    """Where the Spark of tasks may run, beside the workers' own, and where people find what it has done."""

    history: Url | None = None
    """Spark's history server, for links to applications that have ended."""
    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], Target] = Field(default_factory=dict)


class Data(Strict):
    """The bucket of `worker.data`: how it is reached, and what is deleted there."""

    endpoint_url: Url | None = None
    """None, here and in the next three: as in `storage`."""
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: Annotated[SecretStr | None, Field(strict=False)] = None
    gc: bool = True
    """Whether the leader deletes outputs of attempts that lost."""
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=24)


NO_DATA = (
    "is missing; name the folder, shared by all workers, or the s3://bucket/prefix, "
    "where tasks leave their outputs"
)


class Supervision(Strict):
    """How long silence is borne before something is done about it."""

    claim_timeout: PositiveDuration = timedelta(minutes=10)
    beat_grace: Duration = timedelta(seconds=3)
    host_lost_after: PositiveDuration = timedelta(seconds=30)
    max_mishaps: Annotated[int, Field(ge=1, le=1000)] = 10


class Runs(Strict):
    """How many runs there are at once, and how long they are kept in ZooKeeper."""

    keep_finished: Duration = timedelta(hours=1)
    max_running: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """In the whole cluster; further ones queue. None: any number."""


class Retention(Strict):
    """How long parts of a run are kept after its end. None: for ever."""

    logs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    outputs: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    history: Annotated[timedelta, at_least(timedelta(hours=1))] | None = None
    """Logs and outputs go with it."""
    interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)

    def by_part(self) -> dict[Part, timedelta]:
        """The parts that go some time, in the order in which they go."""
        found = {Part.LOGS: self.logs, Part.OUTPUTS: self.outputs, Part.HISTORY: self.history}
        return {part: keep for part, keep in found.items() if keep is not None}


class Alerts(Strict):
    """Whom the leader tells of what goes wrong."""

    targets: dict[Annotated[str, BeforeValidator(texts.plain_name)], AlertTarget] = Field(
        default_factory=dict
    )
    notify: Annotated[list[Notify], Field(max_length=MOST_RULES)] = Field(default_factory=list)
    """For pipelines without `notify`."""
    give_up_after: PositiveDuration = timedelta(hours=24)
    public_url: Url | None = None
    """Base of links in messages. None: `scheduler.advertise_url`."""


class Sync(Strict):
    """How releases come to this disk and stay good there."""

    threads: Annotated[int, Field(ge=1, le=64)] = 4
    bandwidth_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = None
    """Of this process; None: no limit."""
    look_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(seconds=30)
    scrub_interval: Annotated[timedelta, at_least(timedelta(seconds=1))] = timedelta(hours=1)
    scrub_bytes_per_s: Annotated[int | None, Field(ge=1_000)] = 50_000_000
    """None: as fast as the disk does."""
    digests: Literal["name", "sha256"] = "name"
    retry_max: PositiveDuration = timedelta(seconds=30)


class Artifacts(Strict):
    """What becomes of artifacts that no release in use needs: in the bucket, and on this disk."""

    gc: bool = False
    """Whether the leader deletes in the bucket. Off unless said: who else publishes there is not known."""
    gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=6)
    gc_grace: Annotated[timedelta, at_least(timedelta(hours=1))] = timedelta(hours=24)
    gc_keep_age: Annotated[timedelta, at_least(timedelta(hours=24))] = timedelta(days=14)
    gc_keep_newest: Annotated[int, Field(ge=0, le=100_000)] = 10
    gc_max_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    local_gc: bool = True
    """Whether this daemon removes from its own disk what is fetched again if it is needed again."""
    local_gc_interval: Annotated[timedelta, at_least(timedelta(minutes=1))] = timedelta(hours=1)
    local_gc_grace: Duration = timedelta(hours=24)


class Waits(Strict):
    """What tasks of type `wait` may look at."""

    http_allow: list[Annotated[str, BeforeValidator(texts.host_name)]] = Field(default_factory=list)
    """Hosts that they may reach though these are loopback, link-local, or a place of cloud metadata."""


class Log(Strict):
    """What this process says on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"
