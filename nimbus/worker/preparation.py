"""Prepares what must exist before a runner is launched. Threads `worker-prepare-*` and `worker-fetch-*`."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Protocol

from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import ClusterId, PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkMode, TaskKind
from nimbus.task import ACCESS_VARIABLE
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.connect.session import check_packages
from nimbus.worker.data.folder_checks import MARK, is_marked
from nimbus.worker.data.outside import OutsideRefusedError, to_verify, verify
from nimbus.worker.data.places import folder_place
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.driver.environment import driver_environment
from nimbus.worker.environments import FoundEnvironment, lacks, spark_at
from nimbus.worker.host.free_room import MIN_FREE_BYTES
from nimbus.worker.host.task_user import TaskUser
from nimbus.worker.libraries import BadWheelError, find_jars, find_wheels, unpack_wheel
from nimbus.worker.secrets import SecretDeniedError, SecretError, resolve
from nimbus.worker.settings import RunnerPlan, WorkerSettings
from nimbus.worker.targets import SparkTarget, TargetKind

_OF_PYSPARK = (TaskKind.PYSPARK, TaskKind.SQL, TaskKind.SPARK_PIPELINE)


class ReleaseProvider(Protocol):
    """Gets releases onto this machine's disk."""

    def pinned(
        self, pipeline: PipelineName, digest: ReleaseDigest, timeout: timedelta
    ) -> AbstractContextManager[Path]:
        """Fetch and verify a release's files, if needed; return their folder.

        They are not collected inside the `with` block; afterwards the live run protects them, see
        `nimbus.scheduler.garbage`. Exception: `retryable` is true for a temporary failure (S3 down).
        """

    def is_here(self, pipeline: PipelineName, digest: ReleaseDigest) -> bool:
        """True if a release is complete on this disk. Does not contact storage. Raises as `pinned`."""


class CannotRunHereError(NimbusError):
    """An attempt cannot be started on this worker, and a retry here would fail again."""

    code = "cannot_run_here"


class PipelineUnfitError(CannotRunHereError):
    """An attempt cannot be started because of its pipeline."""

    code = "pipeline_unfit"


def is_of_pipeline(error: BaseException) -> bool:
    """True if the error concerns only this pipeline, so that other pipelines can still start attempts here.

    A missing release does not count: the worker may use the wrong bucket. A missing secret counts:
    the task's next attempt goes to another worker, and tasks without secrets need no provider.
    """
    return isinstance(error, PipelineUnfitError | BadWheelError | SecretError | OutsideRefusedError)


def may_heal(error: BaseException) -> bool:
    """True if a retry may succeed; errors of all our packages have this attribute."""
    return bool(getattr(error, "retryable", False))


def prepare(
    order: Assignment, settings: WorkerSettings, releases: ReleaseProvider, cluster: ClusterId
) -> RunnerPlan:
    """Collect everything that a runner needs.

    Raises:
        CannotRunHereError: the release lacks the task's file, the disk is full, the folder of outputs is not
            there, or the result of a sql task would be lost.
        MissingPackagesError: a declarative pipeline needs packages that are not installed here.
        InputRefusedError: an input is gone, or is not in the place of this worker's configuration.
        BadWheelError: a wheel of the task cannot be used.
        SecretError: a secret of the task cannot be read, or its pipeline may not use it.
        Exception: what `releases` and `settings.java_home` raise; see `may_heal`.
    """
    if (denied := settings.secret_rules.denied(order.pipeline, order.task.secrets.values())) is not None:
        raise SecretDeniedError(denied)
    settings.work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if settings.data is not None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    elif not is_marked(settings.data_dir):
        raise CannotRunHereError(f"{settings.data_dir} has no {MARK} of the cluster's outputs: mount it")
    user, java_home = settings.users.of(order.pipeline), None
    target = target_of(order, settings)
    own = _environment_of(order, settings, target)
    connect = _connect_plan(order, settings, target) if _wants_connect(order) else None
    if order.task.kind is TaskKind.SPARK_PIPELINE and own is None:
        check_packages()
        if (lacking := lacks(version("pyspark"), order.task.kind)) is not None:
            raise CannotRunHereError(f"{lacking}, and this worker has {version('pyspark')}")
    if order.task.kind.uses_spark and settings.java_home is not None and connect is None:
        java_home = settings.java_home()
    with releases.pinned(order.pipeline, order.release, settings.prepare_timeout) as root:
        check_order(order, root, settings)
        _fetch_inputs(order, settings, user)
        jars = find_jars(root, order.task.jars)
        wheels = tuple(
            unpack_wheel(root / wheel, settings.work_dir / "wheels", None if own is None else own.tags())
            for wheel in find_wheels(root, order.task.dependencies)
        )
    drivers = driver_environment(
        os.environ,
        java_home=java_home if own is None else own.configured.java_home or java_home,
        extra={
            **settings.env,
            **({} if target is None else target.env),
            **({} if own is None else own.configured.variables()),
            **_access(settings),
            **_no_bytecode(root, user),
        },
        user=user,
    )
    if own is not None and own.configured.spark_home is None:
        drivers.pop("SPARK_HOME", None)
    elif (
        order.task.kind in _OF_PYSPARK and own is None and connect is None and not order.task.runs_in_cluster
    ):
        _check_spark_home(drivers.get("SPARK_HOME"))
    return RunnerPlan(
        cluster=cluster,
        worker=settings.id,
        data_dir=settings.data_dir,
        data_uri=None if settings.data is None else settings.data.uri,
        release_root=root,
        wheels=wheels,
        jars=jars,
        environment=drivers,
        master=settings.master if target is None else target.master,
        spark_conf=settings.spark_conf if target is None else conf_at(target, settings),
        sends_files=_is_elsewhere(order, settings, target)
        and _place_of(settings, target).executors_see != "host",
        unseen_output=_unseen_output(order, settings, target, connect),
        stop_grace_s=settings.stop_grace.total_seconds(),
        user=user,
        secrets={} if order.task.runs_in_cluster else resolve(order.task.secrets, settings.secrets),
        connect=connect,
        telemetry=settings.telemetry,
        interpreter=None if own is None else own.configured.python,
    )


def prepare_if_here(
    order: Assignment, settings: WorkerSettings, releases: ReleaseProvider, cluster: ClusterId
) -> RunnerPlan | None:
    """Like `prepare`, but returns None if files must be fetched or a Connect server started."""
    waits = _wants_connect(order) and order.task.spark_place is None
    if waits and settings.connect is not None and not settings.connect.is_up():
        return None
    if order.task.secrets:
        return None
    if not (releases.is_here(order.pipeline, order.release) and inputs_are_here(order, settings)):
        return None
    return prepare(order, settings, releases, cluster)


def _fetch_inputs(order: Assignment, settings: WorkerSettings, user: TaskUser | None) -> None:
    """A driver in a cluster fetches its inputs there, but for data from outside."""
    for reference in () if order.task.runs_in_cluster else order.inputs.values():
        _place(settings).fetch(reference, None if user is None else user.gid)
    for outside in to_verify(order):
        verify(outside, settings.open_bucket, settings.prepare_timeout)


def inputs_are_here(order: Assignment, settings: WorkerSettings) -> bool:
    """True if `prepare` has no inputs to fetch or verify. InputRefusedError: they are in another place."""
    in_cluster = order.task.runs_in_cluster
    are_here = in_cluster or all(map(_place(settings).is_here, order.inputs.values()))
    return are_here and not any(to_verify(order))


def _access(settings: WorkerSettings) -> dict[str, str]:
    return {ACCESS_VARIABLE: json.dumps(dict(settings.data_access))} if settings.data_access else {}


def _no_bytecode(root: Path, user: TaskUser | None) -> dict[str, str]:
    """Keeps the bytecode of a task's modules out of its release, where only root can write it.

    Later attempts would run it, and nothing verifies it.
    """
    return {"PYTHONDONTWRITEBYTECODE": "1"} if user is None and os.access(root, os.W_OK) else {}


def _place(settings: WorkerSettings) -> DataPlace:
    return settings.data or folder_place(settings.data_dir)


def check_order(order: Assignment, root: Path, settings: WorkerSettings) -> None:
    """Check the parts of an order that differ between attempts of one release. Raises CannotRunHereError."""
    free = shutil.disk_usage(settings.work_dir).free
    if free < MIN_FREE_BYTES:
        raise CannotRunHereError(
            f"the disk of {settings.work_dir} is full: {free >> 20} MiB are free and "
            f"{MIN_FREE_BYTES >> 20} MiB needed. Make room, or lower `worker.keep_attempts`."
        )
    _check_files(root, order)


def _environment_of(
    order: Assignment, settings: WorkerSettings, target: SparkTarget | None
) -> FoundEnvironment | None:
    """The environment of an order's task, else of its target; None: the worker's own.

    CannotRunHereError: this worker lacks it. PipelineUnfitError: tasks of this kind need a later Spark.
    """
    usual = "" if target is None or order.task.runs_in_cluster else target.environment
    if not (name := order.task.environment or usual):
        return None
    environment = settings.environments.get(name)
    if environment is None:
        known = ", ".join(sorted(settings.environments)) or "none"
        raise CannotRunHereError(f"this worker has no environment {name}; it has {known}")
    if isinstance(environment, str):
        raise CannotRunHereError(f"environment {name} of this worker cannot be used: {environment}")
    if (why := environment.unfit(order.task.kind)) is not None:
        raise PipelineUnfitError(why)
    return environment


def target_of(order: Assignment, settings: WorkerSettings) -> SparkTarget | None:
    """The target of an order's task; None: the worker's own Spark. CannotRunHereError: it lacks that."""
    place = order.task.spark_place
    if place is None:
        return None
    target = settings.targets.get(place.target)
    if target is None:
        known = ", ".join(sorted(settings.targets)) or "none"
        raise CannotRunHereError(f"this worker has no target {place.target}; it has {known}")
    if target.kind is TargetKind.CONNECT and not _wants_connect(order):
        raise PipelineUnfitError(f"target {target.name} is a Spark Connect server: say `mode: connect`")
    if target.kind is not TargetKind.CONNECT and _wants_connect(order):
        raise PipelineUnfitError(f"target {target.name} is of kind {target.kind}: say `mode: classic`")
    if place.deploy is SparkDeploy.CLUSTER and not target.kind.runs_drivers:
        raise PipelineUnfitError(
            f"target {target.name} is of kind {target.kind}, which runs no drivers: say `deploy: client`"
        )
    return target


def conf_at(target: SparkTarget, settings: WorkerSettings) -> dict[str, str]:
    """Spark's properties for all tasks at a target: the worker's, overridden by the target's."""
    own = {name: value for name, value in settings.spark_conf.items() if name != "spark.master"}
    return {**own, **target.conf}


def _wants_connect(order: Assignment) -> bool:
    return order.task.spark_mode is SparkMode.CONNECT


def _connect_plan(order: Assignment, settings: WorkerSettings, target: SparkTarget | None) -> ConnectPlan:
    if (user := settings.users.of(order.pipeline)) is not None:
        raise PipelineUnfitError(
            f"tasks of {order.pipeline} run as user {user.name} here, and a Spark Connect server would run "
            "them as the worker's: use `mode: classic`, or a worker without `worker.run_as` for it"
        )
    if target is not None:
        return target.plan()
    if settings.connect is None:
        raise CannotRunHereError("this worker has no Spark Connect; see `connect` in its configuration")
    return settings.connect.plan()


def _unseen_output(
    order: Assignment, settings: WorkerSettings, target: SparkTarget | None, connect: ConnectPlan | None
) -> str:
    """See `RunnerPlan.unseen_output`. Drivers of other kinds of tasks ask: `nimbus.worker.driver.spark`."""
    if connect is None and order.task.kind is not TaskKind.SPARK_SUBMIT:
        return ""
    has_own_server = connect is None or connect.server is not None
    is_here = has_own_server and not _is_elsewhere(order, settings, target)
    if _place_of(settings, target).executors_see is not None or is_here:
        return ""
    key = "worker.executors_see" if target is None else f"spark.targets.{target.name}.executors_see"
    why = (
        "its executors may be on hosts that do not see it: write to storage that they reach (s3a, "
        f".format('nimbus')), or, if they see it, set {key} (docs/tasks.md, Tables for Spark on several "
        "hosts)"
    )
    if order.task.kind is TaskKind.SQL and settings.data is None:
        raise PipelineUnfitError(f"a sql task writes its result by path, but {why}")
    return why


def _place_of(settings: WorkerSettings, target: SparkTarget | None) -> WorkerSettings | SparkTarget:
    return settings if target is None else target


def _is_elsewhere(order: Assignment, settings: WorkerSettings, target: SparkTarget | None) -> bool:
    """True if Spark's executors are no processes of this worker."""
    conf = settings.spark_conf if target is None else {}
    own = {"spark.master": _place_of(settings, target).master, **conf}
    return not {**own, **order.task.spark_conf}["spark.master"].startswith("local")


def _check_spark_home(home: str | None) -> None:
    """PySpark takes the jars of SPARK_HOME instead of its own, and fails in odd ways with another version."""
    if not home:
        return
    own, spark = version("pyspark"), spark_at(Path(home)) or "none"
    if spark.split(".")[:2] != own.split(".")[:2]:
        raise CannotRunHereError(
            f"SPARK_HOME of this worker's environment is {home}, whose Spark is {spark}, and PySpark here is "
            f"{own}: unset it, or let it name that Spark"
        )


def _check_files(root: Path, order: Assignment) -> None:
    for place in (order.output, *order.inputs.values()):
        path = PurePosixPath(place)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise PipelineUnfitError(
                f"task {order.task.name}: folder {place!r} lies outside of the data folder"
            )
    if order.task.file is None:
        return
    script = PurePosixPath(order.task.file)
    if script.is_absolute() or ".." in script.parts:
        raise PipelineUnfitError(f"task {order.task.name}: script {script} lies outside of the release")
    if not (root / script).is_file():
        raise PipelineUnfitError(
            f"release {order.release[:12]} of {order.pipeline} has no file {script}, which task "
            f"{order.task.name} runs. Publish it with that file."
        )
