"""The local stack: ZooKeeper, S3, Spark and schedulers in one folder, started and stopped in order.

Main thread only, as all of this package. Starts no threads.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from nimbus.localstack.daemons import (
    BUCKET,
    DATA_BUCKET,
    SchedulerProcess,
    StackTuning,
    WorkerProcess,
    kept_secret,
    scheduler_command,
    scheduler_settings,
    was_edited,
    worker_command,
    write_settings,
)
from nimbus.localstack.errors import LocalStackError, ProcessStateError
from nimbus.localstack.folder import FolderLock, TaggedProcess, end_tagged, tag_of, tagged_processes
from nimbus.localstack.ports import PortBook
from nimbus.localstack.process import ManagedProcess, Report, silent
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.standalone import TARGET, StandaloneCluster
from nimbus.localstack.zookeeper import ZooKeeperServer

Part = TypeVar("Part")

_ACCESS_KEY = "nimbus-local"
_SCHEDULER_STOP = timedelta(seconds=20)
_LONGEST_SESSION = timedelta(seconds=60)
_SPARK_SESSION = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackAddresses:
    """The addresses of a running stack's parts."""

    zookeeper: str | None
    """Connection string; None: the scheduler is a single one."""
    s3: str
    schedulers: tuple[str, ...]
    """API URLs, in the order of the schedulers' numbers."""
    spark: str | None = None
    spark_pages: tuple[str, ...] = ()


class LocalStack:
    """A whole Nimbus below one folder. Data and ports stay the same between starts.

    Use it as a context manager, or call `start` and, in a `finally`, `stop`.

    Args:
        folder: Contains `zookeeper/`, `s3/`, `spark/`, `data/`, and for schedulers `scheduler-<n>/` and
        `.yaml`.
        single: One scheduler with its state in SQLite, without ZooKeeper.
        standalone: Also start a Spark cluster, which is a target in the schedulers' configuration.
        workers: Number of standalone workers; 0: each scheduler has an embedded one.
        command: Returns a scheduler's command line for its configuration file.
    """

    def __init__(
        self,
        folder: Path,
        schedulers: int = 3,
        *,
        workers: int = 0,
        single: bool = False,
        standalone: bool = False,
        tuning: StackTuning | None = None,
        report: Report = silent,
        command: Callable[[Path], Sequence[str]] = scheduler_command,
    ) -> None:
        if schedulers < 1:
            raise LocalStackError(f"a stack needs at least 1 scheduler, not {schedulers}")
        if single and (schedulers > 1 or workers or standalone):
            raise LocalStackError("a single scheduler has no others, no worker but its own, no Spark cluster")
        self.folder = folder.absolute()
        self._count, self._worker_count, self._standalone = schedulers, workers, standalone
        self._single = single
        self._tuning = tuning or StackTuning()
        self._report, self._command = report, command
        self._lock = FolderLock(self.folder)
        self._zookeeper: ZooKeeperServer | None = None
        self._s3: S3Server | None = None
        self._spark: StandaloneCluster | None = None
        self.schedulers: list[SchedulerProcess] = []
        self.workers: list[WorkerProcess] = []

    @property
    def zookeeper(self) -> ZooKeeperServer:
        """The ZooKeeper of a started stack."""
        return self._started(self._zookeeper)

    @property
    def s3(self) -> S3Server:
        """The S3 server of a started stack."""
        return self._started(self._s3)

    @property
    def spark(self) -> StandaloneCluster:
        """The Spark cluster of a started stack that has one."""
        return self._started(self._spark)

    @property
    def addresses(self) -> StackAddresses:
        """The addresses of a started stack."""
        return StackAddresses(
            zookeeper=None if self._single else self.zookeeper.hosts,
            s3=self.s3.endpoint_url,
            schedulers=tuple(scheduler.url for scheduler in self.schedulers),
            spark=None if self._spark is None else self._spark.master,
            spark_pages=() if self._spark is None else tuple(master.page for master in self._spark.masters),
        )

    def config_file(self, number: int) -> Path:
        """The configuration file of scheduler `number`, counted from 1."""
        return self.folder / f"scheduler-{number}.yaml"

    def start(self) -> None:
        """Start everything. On return the servers are ready; the schedulers after `wait_ready`.

        After a failure, parts that were started are stopped.

        Raises:
            StackLockedError: a stack runs in this folder already.
            ProcessStartError: a part did not start; the message shows the end of its log.
            JavaMissingError, ToolMissingError: something is not installed.
        """
        self._lock.acquire()
        try:
            self._refuse_another_kind()
            self._start_servers()
            for daemon in (*self.schedulers, *self.workers):
                daemon.spawn()
            if self._single:
                self.s3.wait_ready(report=self._report)
        except BaseException:  # also Ctrl-C
            self.stop()
            raise

    def _refuse_another_kind(self) -> None:
        """Refuse a folder with the other kind of state, in which pipelines and runs would seem missing."""
        other = "zookeeper" if self._single else "scheduler-1/store"
        if (self.folder / other).exists():
            kind = "with ZooKeeper" if self._single else "without ZooKeeper"
            raise LocalStackError(f"the cluster in {self.folder} was made {kind}; choose another folder")

    def _start_servers(self) -> None:
        tag, ports = tag_of(self.folder), PortBook(self.folder / "ports.json", self._report)
        if not self._single:
            # Spark's masters always request 60 s, and no master would lead for that time after a kill.
            longest = (
                max(_SPARK_SESSION, self._tuning.session_timeout) if self._standalone else _LONGEST_SESSION
            )
            self._zookeeper = ZooKeeperServer(
                self.folder / "zookeeper", ports.take("zookeeper"), longest_session=longest, environment=tag
            )
        if self._standalone:
            self._spark = StandaloneCluster(self.folder / "spark", ports.take, self.zookeeper, tag)
        self._s3 = S3Server(
            self.folder / "s3",
            ports.take("s3"),
            access_key=_ACCESS_KEY,
            secret_key=kept_secret(self.folder / "s3.secret"),
            environment=tag,
        )
        for number in range(1, self._count + 1):
            name, config = f"scheduler-{number}", self.config_file(number)
            port = self._configure(name, config, ports)
            self.schedulers.append(
                SchedulerProcess(
                    name=name,
                    command=self._command(config),
                    port=port,
                    log=self.folder / name / "scheduler.log",
                    environment=tag,
                )
            )
        for number in range(1, self._worker_count + 1):
            name = f"worker-{number}"
            config = self.folder / f"{name}.yaml"
            self._configure(name, config, ports)
            log = self.folder / name / "worker.log"
            self.workers.append(
                WorkerProcess(name=name, command=worker_command(config), log=log, environment=tag)
            )
        if self._zookeeper is not None:
            self._timed(self._zookeeper, self._zookeeper.hosts)
        for bucket in (BUCKET, DATA_BUCKET):
            self._s3.create_bucket(bucket)
        if self._single:
            self._s3.spawn()  # it is ready before the scheduler has loaded its code
            return
        self._timed(self._s3, self._s3.endpoint_url)
        if self._spark is not None:
            self._timed(self._spark, self._spark.master)

    def _configure(self, name: str, config: Path, ports: PortBook) -> int:
        """Write a daemon's configuration file; return its port."""
        port = ports.take(name)
        settings = scheduler_settings(
            scheduler_id=name,
            port=port,
            folder=self.folder,
            zookeeper=self._zookeeper,
            s3=self.s3,
            tuning=self._tuning,
            embedded_worker=self._worker_count == 0,
            targets={} if self._spark is None else {TARGET: self._spark.target()},
        )
        if was_edited(config):
            kept = config.replace(config.with_suffix(".edited.yaml"))
            self._report(f"{config} was edited: it is written again at each start. Yours is kept as {kept}.")
        write_settings(config, settings)
        return port

    def _timed(self, server: ManagedProcess | StandaloneCluster, address: str) -> None:
        began = time.monotonic()
        server.start(self._report)
        self._report(f"{server.name}: answers on {address} after {time.monotonic() - began:.1f} s")

    def wait_ready(self, deadline: timedelta = timedelta(seconds=60)) -> None:
        """Wait until `/readyz` returns 200 on every scheduler that this object has not killed or stopped.

        Raises:
            ProcessStartError: one ended, or was not ready within `deadline`, which is for all together.
        """
        until = time.monotonic() + deadline.total_seconds()
        for daemon in (*self.schedulers, *self.workers):
            if daemon.wanted:
                daemon.wait_ready(timedelta(seconds=max(0.0, until - time.monotonic())), self._report)
                if isinstance(daemon, SchedulerProcess):
                    self._report(f"{daemon.name}: ready on {daemon.url}")

    def scheduler(self, number: int) -> SchedulerProcess:
        """Scheduler `number`, counted from 1 as in its id."""
        if not 1 <= number <= len(self.schedulers):
            raise ProcessStateError(f"there is no scheduler-{number}; this stack has {len(self.schedulers)}")
        return self.schedulers[number - 1]

    def kill_scheduler(self, number: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one scheduler, not to its attempts. After SIGKILL, wait until it has ended."""
        scheduler = self.scheduler(number)
        if signal_number is signal.SIGKILL:
            scheduler.kill()
        else:
            scheduler.send_signal(signal_number)

    def restart_scheduler(self, number: int) -> None:
        """Restart one scheduler. Returns before it is ready."""
        scheduler = self.scheduler(number)
        scheduler.stop(_SCHEDULER_STOP)
        scheduler.spawn()

    def leftovers(self) -> list[TaggedProcess]:
        """Processes of this stack other than its servers and schedulers: attempts, or leftovers."""
        return tagged_processes(self.folder, but=self._pids())

    def stop(self) -> None:
        """Stop schedulers, attempts of tasks, Spark, S3 and ZooKeeper, in this order. Safe to repeat.

        A part that does not end in time is killed. A failure of one part does not prevent stopping the
        others.
        """
        with ExitStack() as last_first:
            last_first.callback(self._lock.release)
            for server in (self._zookeeper, self._s3):
                if server is not None:
                    last_first.callback(server.stop)
            last_first.callback(self._end_attempts)  # and executors
            if self._spark is not None:
                last_first.callback(self._spark.stop)
                last_first.callback(self._end_attempts)
            last_first.callback(self._stop_schedulers)
        self.schedulers, self.workers = [], []
        self._zookeeper = self._s3 = self._spark = None

    def _stop_schedulers(self) -> None:
        until = time.monotonic() + _SCHEDULER_STOP.total_seconds()
        daemons: list[ManagedProcess] = [*self.schedulers, *self.workers]
        for daemon in daemons:  # all together, because each may drain for a while
            daemon.terminate()
        for daemon in daemons:
            daemon.stop(timedelta(seconds=until - time.monotonic()))

    def _end_attempts(self) -> None:
        # Only for the holder of the lock: another stack's attempts in this folder would have the same tag.
        if self._s3 is not None:
            end_tagged(self.folder, but=self._pids(), patience=self._tuning.attempt_patience)

    def _pids(self) -> set[int]:
        parts: list[ManagedProcess | None] = [self._zookeeper, self._s3, *self.schedulers, *self.workers]
        parts += [] if self._spark is None else self._spark.daemons
        return {part.pid for part in parts if part is not None and part.running}

    def _started(self, part: Part | None) -> Part:
        if part is None:
            raise ProcessStateError(f"the stack in {self.folder} does not run; start it first")
        return part

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
