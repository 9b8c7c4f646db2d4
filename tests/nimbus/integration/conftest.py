"""A small cluster in memory behind a real HTTP server, for the tests of API and command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner, Result
from prometheus_client import CollectorRegistry

from nimbus.access.gate import AccessGate
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.cluster import TreeCommandQueue
from nimbus.api import submitting
from nimbus.api.server import ApiServer
from nimbus.api.services import (
    AlertTests,
    ApiServices,
    ConfirmedLeader,
    OutputFiles,
    QueuePlace,
    ReadinessCheck,
)
from nimbus.api.submitting import await_outcome
from nimbus.cli.main import cli
from nimbus.config.settings import Shown
from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import AssignmentKind, WorkerInfo
from nimbus.domain.cluster.schedulers import ElectionRole, MissingFile, SchedulerInfo
from nimbus.domain.commands import (
    ActOnSelection,
    Command,
    CommandOutcome,
    CreateBackfill,
    QueuedCommand,
    StartRun,
)
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, CommandId, HostId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    PipelineSpec,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.engine.rules.commands.selections import next_parts
from nimbus.ports import AlertNotSentError, CommandQueue
from nimbus.worker import worker
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.definitions import OnDisk, active
from tests.nimbus.dict_cluster import ROOT, DictCluster
from tests.nimbus.integration.web_pages import audited, published, sample, web  # noqa: F401 - fixtures
from tests.nimbus.one_application import application
from tests.nimbus.release_stage import ReleaseStage

if TYPE_CHECKING:
    from nimbus.localstack.s3 import S3Server
    from tests.nimbus.worker_bench import Bench

T0 = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def stored_logs(bench: Bench, s3_server: S3Server, s3_bucket: str) -> None:
    """Store the logs of the worker bench's attempts, as the workers of users do."""
    bench.keep_logs_in(s3_server, s3_bucket)


@dataclass
class HeldClock:
    """A clock that does not advance by itself."""

    time: datetime = T0

    def now(self) -> datetime:
        return self.time

    def elapsed_s(self) -> float:
        return 0.0


@dataclass
class FakeHealth:
    """A scheduler whose state the test sets."""

    me: SchedulerInfo
    queue: list[QueuePlace] = field(default_factory=list)
    leading: ConfirmedLeader | None = None
    cluster_schema: int | None = 1
    checks: list[ReadinessCheck] = field(default_factory=list)

    def readiness(self) -> Sequence[ReadinessCheck]:
        return self.checks

    def info(self) -> SchedulerInfo:
        return self.me

    def participants(self) -> Sequence[QueuePlace]:
        return self.queue

    def schema(self) -> int | None:
        return self.cluster_schema

    def leader(self) -> ConfirmedLeader | None:
        return self.leading


def _scheduler(name: str, **changes: object) -> SchedulerInfo:
    info = SchedulerInfo(
        id=name,
        boot_id=f"boot-{name}",
        host=HostId("h1"),
        hostname="one",
        address=f"http://{name}:8700",
        pid=11,
        version="0.1.0",
        started_at=T0,
        reported_at=T0,
        role=ElectionRole.QUEUED,
        ready=True,
    )
    return replace(info, **changes)  # type: ignore[arg-type]


class HookProvider(dict[str, str]):
    """Secrets of webhooks, with a record of the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __call__(self, name: str) -> str:
        self.asked.append(name)
        if name not in self:
            raise NimbusError(f"there is no {name} in /etc/secrets")
        return self[name]


class _AnsweredQueue(TreeCommandQueue):
    """The leader of a world decides each command when it is submitted."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster.calls(), ROOT)
        self.world = world

    def submit(self, command: Command, **more: Any) -> CommandId:
        made = super().submit(command, **more)
        self.world.answer(made)
        return made


class World:
    """Pipeline `sums` (extract, then load), schedulers s1 (leads) and s2 (one file is missing), worker w1."""

    def __init__(self) -> None:
        self.refuse: tuple[str, str] | None = None
        self.deciding = True
        self.accepted: list[Command] = []
        self.hook_secrets = HookProvider()
        self.releases = ReleaseStage()
        self.settings: list[Shown] = []
        self.gate = AccessGate()
        self.gate.know_store({}, b"k" * 32)
        self.cluster = DictCluster()
        self.reader, self.queue = self.cluster.reader(), _AnsweredQueue(self)
        self.history, self.logs = S3History(self.releases.bucket), S3LogArchive(self.releases.bucket)
        self.outputs: OutputFiles | None = None
        self.clock = HeldClock()
        self.registry = CollectorRegistry()
        lacks = MissingFile(pipeline="sums", path="a.py", role="code", size_bytes=9, sha256="cd" * 32)
        one = _scheduler("s1", role=ElectionRole.LEADER, epoch=7, leader_since=T0, has_sentinel=True)
        two = _scheduler("s2", ready=False, missing=(lacks,), missing_count=1, missing_bytes=9)
        self.health = FakeHealth(
            me=one,
            queue=[
                QueuePlace(id="s1", boot_id="boot-s1", position=0, is_leader=True),
                QueuePlace(id="s2", boot_id="boot-s2", position=1, is_leader=False, is_next=True),
            ],
            leading=ConfirmedLeader(id="s1", address="http://s1:8700", epoch=7),
            checks=[
                ReadinessCheck(name="zookeeper", ok=True),
                ReadinessCheck(name="artifacts", ok=False, detail="1 file missing", required=False),
            ],
        )
        self.spec = PipelineSpec(
            name=PipelineName("sums"),
            description="Adds things up",
            tasks=(
                TaskSpec(
                    name=TaskName("load"), kind=TaskKind.SQL, script="l.sql", needs=(TaskName("extract"),)
                ),
                TaskSpec(
                    name=TaskName("extract"),
                    kind=TaskKind.PYTHON,
                    script="e.py",
                    timeout=timedelta(minutes=5),
                    retries=Retries(limit=1),
                ),
            ),
        )
        self.record = active(self.spec, updated_at=T0)
        self.worker = WorkerInfo(
            id=WorkerId("w1"),
            host=HostId("h1"),
            hostname="one",
            pid=12,
            slots=1,
            version="0.1.0",
            started_at=T0,
            reported_at=T0,
        )
        self.cluster.put(one, two, self.record, self.worker)

    def services(self) -> ApiServices:
        return ApiServices(
            reader=self.reader,
            definitions=OnDisk(),
            commands=self.queue,
            history=self.history,
            logs=self.logs,
            health=self.health,
            metrics=self.registry,
            clock=self.clock,
            releases=self.releases,
            settings=self.settings,
            session_timeout=timedelta(seconds=10),
            changes=self.cluster.changes(),
            hook_secret=self.hook_secrets,
            alerts=AlertTests(kinds={"oncall": "webhook", "dead": "mail"}, send=self._send),
            gate=self.gate,
            outputs=self.outputs,
        )

    def _send(self, target: str) -> None:
        if target == "dead":
            raise AlertNotSentError("nobody listens")

    def decide_one(self, queued: QueuedCommand) -> CommandOutcome | None:
        if not self.deciding:
            return None
        code, message = self.refuse or ("ok", "done")
        command = queued.command
        if isinstance(command, StartRun) and code == "ok" and command.run_id not in self.cluster.world.runs:
            given = {"parameters": dict(command.parameters), "data_interval": command.data_interval}
            self.cluster.put(self.new_run(command.run_id, timezone="UTC", **given))
        if isinstance(command, CreateBackfill) and code == "ok":
            self.cluster.put(self._backfill(command))
        if isinstance(command, ActOnSelection) and code == "ok":
            self._select(queued, command)
        if code == "ok":
            self.accepted.append(command)
        return CommandOutcome(
            command=queued.id,
            accepted=code == "ok",
            code=code,
            message=message,
            decided_at=T0,
            epoch=7,
            run_id=command.run_id if isinstance(command, StartRun) else None,
            kind="start_run",
        )

    def _select(self, queued: QueuedCommand, command: ActOnSelection) -> None:
        """Answer a command for each target; that for a run with `bad` in its name is refused."""
        while command.targets:
            parts, command = next_parts(queued, command, self.cluster.world.pipelines, T0)
            for part in parts:
                is_bad = "bad" in getattr(part.command, "run_id", "")
                outcome = CommandOutcome(
                    command=part.id,
                    accepted=not is_bad,
                    code="run_finished" if is_bad else "ok",
                    message="it has ended" if is_bad else "done",
                    decided_at=T0,
                    epoch=7,
                    kind=part.command.type,
                )
                self.cluster.set("outcomes", part.id, outcome)

    def _backfill(self, command: CreateBackfill) -> Backfill:
        return Backfill(
            id=command.backfill,
            pipeline=command.pipeline,
            release=self.record.published,
            schedule=None,
            request=command.request,
            created_at=T0,
        )

    def decide(self) -> None:
        """Let the leader decide: waiting commands now, and later ones at once."""
        self.deciding = True
        for command in self.cluster.world.commands:
            self.answer(command)

    def answer(self, command: CommandId) -> None:
        """Let the leader decide a command, if it does."""
        with self.cluster.store.lock:  # another thread may decide it, too
            queued = self.cluster.world.commands.get(command)
            if queued is not None and (outcome := self.decide_one(queued)) is not None:
                self.cluster.answer(replace(outcome, key=queued.key))

    def new_run(self, run_id: str, **changes: object) -> Run:
        """A run of `sums` without started tasks."""
        run = Run(
            id=RunId(run_id),
            pipeline=self.spec.name,
            release=self.record.published,
            parameters={},
            logical_date=T0,
            created_at=T0,
            started_at=T0,
            cause=RunCause.MANUAL,
            priority=Priority.MEDIUM,
            failure_strategy=FailureStrategy.END,
            tasks=Tasks(TaskRun(spec=task) for task in self.spec.tasks),
        )
        return replace(run, **changes)  # type: ignore[arg-type]

    def opened(self, run: Run, task: str, *, minutes: int = 1) -> Run:
        """Open the next attempt of a task on w1, and let its driver claim it and report progress."""
        at = T0 + timedelta(minutes=minutes)
        name = TaskName(task)
        run = lifecycle.open_attempt(run, name, worker=self.worker.id, epoch=7, now=at)
        attempt = AttemptId(run.id, name, run.tasks[name].tried)
        claim = Claim(attempt=str(attempt), worker=self.worker.id, host=HostId("h1"), pid=99, claimed_at=at)
        self.cluster.set_slots(attempt, Slots(claim=claim, has_heartbeat=True, progress={"stages": "3/7"}))
        return self.put_live(run)

    def put_live(self, run: Run) -> Run:
        """Add or replace a run, and the orders for its open attempts."""
        self.cluster.put(run)
        for attempt in run.open_attempts():
            order = order_for(run, attempt, epoch=7, kind=AssignmentKind.RUN)
            self.cluster.set("orders", (self.worker.id, attempt), order)
        return run

    def ended(
        self,
        run: Run,
        task: str,
        outcome: Outcome,
        *,
        minutes: int = 2,
        reason: str = "",
        result: dict[str, Any] | None = None,
        output: str | None = None,
    ) -> Run:
        """End the open attempt of a task."""
        at = T0 + timedelta(minutes=minutes)
        name = TaskName(task)
        attempt = AttemptId(run.id, name, run.tasks[name].tried)
        end = End(
            attempt=str(attempt),
            outcome=outcome,
            written_by="runner",
            started_at=at - timedelta(seconds=30),
            ended_at=at,
            exit_code=0 if outcome is Outcome.SUCCEEDED else 1,
            failure=FailureClass.MISSING_INPUT if outcome is Outcome.FAILED else None,
            reason=reason,
            result=result,
            output=output,
        )
        self.cluster.set_slots(attempt, Slots(end=end))
        self.cluster.set("orders", (self.worker.id, attempt), None)
        run = lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=10, now=at)
        self.cluster.put(run)
        return run

    def succeeded(self, run_id: str) -> Run:
        """A run that has succeeded."""
        run = self.ended(self.opened(self.new_run(run_id), "extract"), "extract", Outcome.SUCCEEDED)
        return self.ended(self.opened(run, "load", minutes=3), "load", Outcome.SUCCEEDED, minutes=4)

    def failed(self, run_id: str) -> Run:
        """A run whose first task has failed twice."""
        run = self.opened(self.new_run(run_id), "extract")
        run = self.ended(run, "extract", Outcome.FAILED, reason="exit 1")
        run = self.opened(run, "extract", minutes=4)
        return self.ended(run, "extract", Outcome.FAILED, minutes=5, reason="exit 1")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkLauncher]:
    """A fork server for all tests of a file: its start takes a second of processor time."""
    launcher = ForkLauncher()
    launcher.start()
    yield launcher
    launcher.close()


class SharedForks(ForkLauncher):
    """The launcher of a worker that uses the fork server of the file, and leaves it running."""

    def __init__(self, launcher: ForkLauncher) -> None:
        super().__init__()
        self._server = launcher._server

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def worker_forks(forks: ForkLauncher) -> Callable[[], ForkLauncher]:
    """Makes the launcher of a worker that leaves the fork server of the file running."""
    return lambda: SharedForks(forks)


@pytest.fixture
def shared_forks(worker_forks: Callable[[], ForkLauncher], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of the test start no fork server of their own, except for Spark Connect.

    Not for a test of what becomes of a process when its fork server ends with its worker.
    """

    def launcher(*options: str) -> ForkLauncher:
        return ForkLauncher(*options) if options else worker_forks()

    monkeypatch.setattr(worker, "ForkLauncher", launcher)


@pytest.fixture
def world() -> World:
    """The cluster. Tests change it."""
    return World()


@pytest.fixture
def server(world: World, request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """A real server for `world`, on a free port."""
    is_own = request.node.get_closest_marker("own_application") is not None
    server = ApiServer(application(world.services(), own=is_own))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def api_url(server: ApiServer) -> str:
    """The server's base URL."""
    return server.url


@pytest.fixture
def api(api_url: str) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=f"{api_url}/api/v1", timeout=30) as client:
        yield client


@pytest.fixture
def nimbus(api_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, with the server of the test.

    The server does not wait for a decision, because the leader of `world` decides at once, or never.
    """

    async def outcome_now(queue: CommandQueue, command: CommandId, _wait_s: float) -> CommandOutcome | None:
        return await await_outcome(queue, command, 0)

    monkeypatch.setenv("NIMBUS_SERVER", api_url)
    monkeypatch.setattr(submitting, "await_outcome", outcome_now)

    def invoke(*words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(words), input=stdin)

    return invoke
