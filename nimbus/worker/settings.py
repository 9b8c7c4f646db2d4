"""How one worker is set up, and what it tells a runner. Checked once, then trusted."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pydantic import TypeAdapter

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import ClusterId, HostId, WorkerId
from nimbus.domain.slots import ConnectSession
from nimbus.worker.connect_plan import ConnectPlan, ConnectProvider, ConnectReach
from nimbus.worker.connections import Connections
from nimbus.worker.free_room import MinFree
from nimbus.worker.secrets import Provider
from nimbus.worker.task_telemetry import TaskTelemetry
from nimbus.worker.task_user import TaskUser, TaskUsers

if TYPE_CHECKING:
    from nimbus.worker.data.bucket import BucketPlace
    from nimbus.worker.targets import SparkTarget

CONNECT_OPTION = "--connect"
"""Of a fork server: import the client of Spark Connect, for drivers of tasks in `mode: connect`."""


class WorkerSettingsError(NimbusError):
    """A worker cannot be set up like this."""

    code = "worker_settings"
    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker."""

    id: WorkerId
    work_dir: Path
    """This worker's own: attempt folders and unpacked wheels."""
    data_dir: Path
    """Outputs of tasks, shared by all workers; with `data`, copies of inputs, this worker's own."""
    data: BucketPlace | None = None
    """Outputs are in a bucket, and this is how the worker reaches it."""
    data_access: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What tasks are told of how the bucket is reached; see `nimbus.task.TaskContext.data`."""
    slots: int = 2
    """Attempts at once."""
    master: str = "local[2]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """For every task; a task's own wins."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of drivers. Not for secrets: the processes of a user can read it."""
    java_home: Callable[[], Path] | None = None
    """Asked at the start, and before a Spark task is prepared; raises a NimbusError when there is no Java."""
    heartbeat: timedelta = timedelta(seconds=5)
    stop_grace: timedelta = timedelta(seconds=10)
    """From SIGTERM to SIGKILL."""
    prepare_timeout: timedelta = timedelta(minutes=10)
    keep_attempts: timedelta = timedelta(days=2)
    """How long a delivered attempt's folder stays."""
    class_archive: bool = True
    """Whether a class-data archive of Spark's jars is made and used."""
    class_archive_dir: Path | None = None
    """Where; None: in work_dir."""
    warm_drivers: int = 1
    """How many Spark drivers wait for an attempt at most."""
    users: TaskUsers = field(default_factory=TaskUsers)
    """As whom tasks run."""
    version: str = ""
    connect: ConnectProvider | None = None
    """For tasks in `mode: connect`; None: they are refused."""
    targets: Mapping[str, SparkTarget] = field(default_factory=dict)
    """Places where a task's Spark runs that names one."""
    labels: tuple[str, ...] = ()
    """What tasks can ask for with `runs_on`."""
    min_free: MinFree = field(default_factory=MinFree)
    secrets: Provider | None = field(default=None, repr=False)
    """Of what tasks name as `secrets`; None: such tasks are refused."""
    telemetry: TaskTelemetry = field(default_factory=TaskTelemetry)
    """What tasks are told of their trace and lineage."""
    scheduler_id: str | None = None
    """The scheduler that this worker is embedded in."""
    is_alone: bool = False
    """No other worker can have Java, so this one looks for it only when a task needs it."""

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
        """See `ConnectReach.reach`."""
        places: list[ConnectReach] = list(self.targets.values())
        if self.connect is not None:
            places.append(self.connect)
        return next((plan for place in places if (plan := place.reach(session)) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPlan:
    """All that a runner must know beside the order: where things are and how to run them."""

    cluster: ClusterId
    worker: WorkerId
    host: HostId
    data_dir: Path
    data_uri: str | None = None
    """See `nimbus.worker.data.places.place_of`, with `data_dir`."""
    release_root: Path
    wheels: tuple[Path, ...] = ()
    """Unpacked wheels of the release."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The driver's whole environment, but for what belongs to the attempt."""
    master: str = "local[2]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    connect: ConnectPlan | None = None
    """For a task in `mode: connect`. Its token is a secret that the driver needs as well."""
    class_archive: Path | None = None
    """For the JVM of a Spark driver, if there is one."""
    user: TaskUser | None = None
    """As whom the driver runs; None: as we do."""
    checkpoint: str | None = None
    """Of the attempts before, as JSON."""
    telemetry: TaskTelemetry = field(default_factory=TaskTelemetry)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the task, for the driver's environment. Never on disk, nor in a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStartup:
    """What a runner reads when it starts. Holds secrets: never on disk, in argv or environment."""

    plan: RunnerPlan
    connections: Connections

    def encode(self) -> bytes:
        """The plan with its length before it, and the connections, as JSON: see `read_plan`."""
        plan = _PLAN.dump_json(self.plan)
        return len(plan).to_bytes(_LENGTH_BYTES, "big") + plan + encode_connections(self.connections)

    @classmethod
    def decode(cls, data: bytes) -> RunnerStartup:
        """Read what `encode` wrote."""
        file = io.BytesIO(data)
        return cls(plan=read_plan(file), connections=read_connections(file))


def read_plan(file: BinaryIO) -> RunnerPlan:
    """Read the first part of a startup. Of an unbuffered file, no secret gets into memory."""
    return _PLAN.validate_json(_read(file, int.from_bytes(_read(file, _LENGTH_BYTES), "big")))


def encode_connections(connections: Connections) -> bytes:
    """The startup of an executor, as JSON. Holds secrets: never on disk, in argv or environment."""
    return _CONNECTIONS.dump_json(connections)


def read_connections(file: BinaryIO) -> Connections:
    """Read the rest of a runner's startup, or an executor's: the secrets."""
    return _CONNECTIONS.validate_json(file.read())


def _read(file: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


_LENGTH_BYTES = 8
_PLAN = TypeAdapter(RunnerPlan)
_CONNECTIONS = TypeAdapter(Connections)
