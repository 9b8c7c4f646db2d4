"""Settings of one worker, and the data that it passes to a runner. Checked once, then trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pydantic import TypeAdapter

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import ClusterId, WorkerId
from nimbus.worker.attempt.connections import Connections
from nimbus.worker.connect.plan import ConnectPlan, ConnectProvider
from nimbus.worker.environments import Environments
from nimbus.worker.host.free_room import FreeRoom
from nimbus.worker.host.task_user import TaskUser, TaskUsers
from nimbus.worker.secrets import Provider

if TYPE_CHECKING:
    from nimbus.worker.data.bucket import BucketPlace
    from nimbus.worker.data.ports import DataStore
    from nimbus.worker.targets import SparkTarget


from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import SparkMode
from nimbus.domain.runs.traces import attempt_uuid, run_uuid, traceparent

CONNECT_OPTION = "--connect"
"""Option of a fork server: import the Spark Connect client, for drivers of tasks in `mode: connect`."""


class WorkerSettingsError(NimbusError):
    """A worker cannot run with these settings."""

    code = "worker_settings"
    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTelemetry:
    """A worker's settings. Contains no secrets."""

    traces: bool = False
    namespace: str = ""
    transport: Mapping[str, str] = field(default_factory=dict)
    """Properties that tell OpenLineage's listener in Spark where to send; empty: none are set."""

    def variables(self, cluster: ClusterId, attempt: AttemptId) -> dict[str, str]:
        """Variables for the environment of an attempt's driver."""
        return {"TRACEPARENT": traceparent(cluster, attempt)} if self.traces else {}

    def spark_properties(self, cluster: ClusterId, order: Assignment) -> dict[str, str]:
        """Properties for the Spark of an attempt; none on a shared Spark Connect server."""
        task = order.task
        if not (self.transport and task.kind.uses_spark and task.spark_mode is SparkMode.CLASSIC):
            return {}
        attempt = AttemptId.parse(order.attempt)
        parents = {
            "parentJobNamespace": self.namespace,
            "parentJobName": f"{order.pipeline}.{task.name}",
            "parentRunId": attempt_uuid(cluster, attempt),
            "rootParentJobNamespace": self.namespace,
            "rootParentJobName": order.pipeline,
            "rootParentRunId": run_uuid(cluster, order.run),
        }
        return {f"spark.openlineage.{name}": value for name, value in {**self.transport, **parents}.items()}


def _no_bucket(bucket: str) -> DataStore:
    raise WorkerSettingsError(f"s3://{bucket} cannot be opened: this worker has no storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of one worker."""

    id: WorkerId
    work_dir: Path
    """This worker's own folder: attempt folders and unpacked wheels."""
    data_dir: Path
    """Folder of task outputs that all workers share; with `data`, this worker's folder of input copies."""
    data: BucketPlace | None = None
    """The bucket of task outputs; None: outputs are in `data_dir`."""
    data_access: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The bucket's connection settings for tasks; see `nimbus.task.TaskContext.data`."""
    open_bucket: Callable[[str], DataStore] = field(default=_no_bucket, repr=False)
    """Opens a bucket with data from outside by its name."""
    slots: int = 2
    master: str = "local[2]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Properties for every task; a task's own properties override them."""
    executors_see: str | None = None
    """As of `SparkTarget`, for `master` and `connect`."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of drivers. Not for secrets: other processes of the user can read it."""
    java_home: Callable[[], Path] | None = None
    """Called at the start, and before a Spark task is prepared; raises a NimbusError without Java."""
    heartbeat: timedelta = timedelta(seconds=5)
    stop_grace: timedelta = timedelta(seconds=10)
    """Time from SIGTERM to SIGKILL."""
    prepare_timeout: timedelta = timedelta(minutes=10)
    keep_attempts: timedelta = timedelta(days=2)
    """How long a delivered attempt's folder stays."""
    idle_jvms: int = 2
    """Most idle Spark JVMs; 0: none is kept."""
    preload: tuple[str, ...] = ()
    """Modules that are imported once for all pooled attempts."""
    users: TaskUsers = field(default_factory=TaskUsers)
    version: str = ""
    connect: ConnectProvider | None = None
    """Provider for tasks in `mode: connect`; None: they are refused."""
    targets: Mapping[str, SparkTarget] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    environments: Environments = field(default_factory=Environments)
    min_free: FreeRoom = field(default_factory=FreeRoom)
    secrets: Provider | None = field(default=None, repr=False)
    """Provider of secrets; None: tasks with `secrets` are refused."""
    secret_rules: SecretRules = field(default_factory=SecretRules)
    telemetry: TaskTelemetry = field(default_factory=TaskTelemetry)
    scheduler_id: str | None = None
    is_alone: bool = False
    """There is no other worker, so Java is searched only when a task needs it."""

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise WorkerSettingsError(f"worker.slots is {self.slots}; a worker needs at least 1")
        for name in ("work_dir", "data_dir"):
            if not getattr(self, name).is_absolute():
                raise WorkerSettingsError(
                    f"worker.{name} ({getattr(self, name)}) must be an absolute path: drivers run elsewhere"
                )
        for name in ("heartbeat", "prepare_timeout"):
            if getattr(self, name) <= timedelta(0):
                raise WorkerSettingsError(f"worker.{name} ({getattr(self, name)}) must be above 0")
        for name in ("stop_grace", "keep_attempts"):
            if getattr(self, name) < timedelta(0):
                raise WorkerSettingsError(f"worker.{name} ({getattr(self, name)}) must not be negative")

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """See `ConnectReach`."""
        places: list[SparkTarget | ConnectProvider] = [*self.targets.values()]
        if self.connect is not None:
            places.append(self.connect)
        return next((plan for place in places if (plan := place.reach(session)) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPlan:
    """All data that a runner needs in addition to the order."""

    cluster: ClusterId
    worker: WorkerId
    data_dir: Path
    data_uri: str | None = None
    """See `nimbus.worker.data.places.place_of`, with `data_dir`."""
    release_root: Path
    wheels: tuple[Path, ...] = ()
    """Unpacked wheels of the task; the first with a module wins."""
    jars: tuple[str, ...] = ()
    """Jars of the release for the task's Spark, as paths in the release."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The driver's environment, without the variables of the attempt."""
    master: str = "local[2]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    connect: ConnectPlan | None = None
    """For a task in `mode: connect`. Its token is a secret that the driver also needs."""
    interpreter: Path | None = None
    user: TaskUser | None = None
    checkpoint: str | None = None
    """The last checkpoint of earlier attempts, as JSON."""
    sends_files: bool = False
    """Spark's executors may be on hosts that do not see the release."""
    unseen_output: str = ""
    """Why Spark's executors may not see the output, if its driver cannot ask them, with what to do."""
    telemetry: TaskTelemetry = field(default_factory=TaskTelemetry)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The task's secrets by variable, for the driver's environment. Never on disk or in a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStartup:
    """The data that a runner reads at its start. Contains secrets: never on disk, in argv or environment."""

    plan: RunnerPlan
    connections: Connections

    def encode(self) -> bytes:
        """As JSON: the plan, then the connections."""
        return encode_plan(self.plan) + _CONNECTIONS.dump_json(self.connections)


def encode_plan(plan: RunnerPlan) -> bytes:
    """Its length, then the plan as JSON. More can follow."""
    data = _PLAN.dump_json(plan)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def read_plan(file: BinaryIO) -> RunnerPlan:
    """Read a plan up to its end. With an unbuffered file, no secret that follows gets into memory."""
    return _plan(_read(file, int.from_bytes(_read(file, _LENGTH_BYTES), "big")))


@lru_cache(maxsize=16)
def _plan(data: bytes) -> RunnerPlan:
    """Decode a plan; cached for executors, because plans of one release are equal."""
    return _PLAN.validate_json(data)


def read_connections(file: BinaryIO) -> Connections:
    """Read the rest of a runner's startup, which contains the secrets."""
    return _CONNECTIONS.validate_json(file.read())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStartup:
    """What an executor reads at its start. Contains secrets: never on disk, in argv or environment."""

    connections: Connections
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """As of `WorkerSettings`: libraries read it when they are imported."""

    def encode(self) -> bytes:
        """As JSON."""
        return _EXECUTOR_STARTUP.dump_json(self)


def read_executor_startup(file: BinaryIO) -> ExecutorStartup:
    """Read the startup of an executor."""
    return _EXECUTOR_STARTUP.validate_json(file.read())


def _read(file: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


_LENGTH_BYTES = 8
_PLAN = TypeAdapter(RunnerPlan)
_CONNECTIONS = TypeAdapter(Connections)
_EXECUTOR_STARTUP = TypeAdapter(ExecutorStartup)
