"""Effects on their own threads: a waiting effect does not block others, and closing ends all waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from blobsync import BucketUnavailableError
from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_purges import S3Purges
from nimbus.adapters.s3_records import index_of, run_key
from nimbus.adapters.store.runs import prepare
from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.commands import CommandOutcome, PurgeRuns
from nimbus.domain.data.outputs import OutputsNotHereError
from nimbus.domain.data.publications import NO_SOURCE, OutsideData, Version
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import (
    AttemptId,
    CommandId,
    DatasetName,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import FailureStrategy, PipelineSpec, Priority, TaskKind, TaskSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.children import ChildSpec, Parent
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.purge import Purged, PurgeOrder
from nimbus.domain.runs.run import Run, RunCause, RunPart, RunState, place
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Attempt, Outcome, Reused, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.waits import DataProbe, DataSource, ProbeResult
from nimbus.engine import effects
from nimbus.engine.decision import (
    ArchiveOutcomes,
    ArchiveRun,
    BuildRun,
    PrepareRelease,
    ProbeData,
    Refusal,
    RenderTask,
    ResignLeadership,
    StorePurge,
    StoreVersions,
)
from nimbus.engine.effects import RUNS_AT_ONCE, Effects
from nimbus.engine.events import (
    BuildingFailed,
    DataSeen,
    Event,
    OutcomesArchived,
    ReleasePrepared,
    RenderingFailed,
    RunArchived,
    RunBuilt,
    StoredForCommand,
    TaskRendered,
)
from nimbus.engine.history_lookups import EarlierRuns
from nimbus.engine.sending import AlertSender
from nimbus.engine.state import Built
from nimbus.engine.work_queue import Key
from nimbus.ports import DefinitionNotHereError, StoreUnavailableError
from nimbus.records import UnreadableRecordError
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError
from tests.nimbus.children_stage import parent
from tests.nimbus.definitions import OnDisk, active

Eventually = Callable[..., None]
NAME = PipelineName("p")
RELEASE = ReleaseOf(NAME, ReleaseDigest("a" * 64))
SPEC = PipelineSpec(name=NAME)


def finished(run_id: str) -> Run:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Run(
        id=RunId(run_id),
        pipeline=NAME,
        release=RELEASE.digest,
        parameters={},
        logical_date=now,
        created_at=now,
        cause=RunCause.MANUAL,
        priority=Priority.LOW,
        failure_strategy=FailureStrategy.END,
        state=RunState.SUCCEEDED,
        finished_at=now,
    )


SECOND = TaskName("second")
REFUSAL = CommandOutcome(
    command=CommandId("cmd-1"),
    accepted=False,
    code="busy",
    message="",
    decided_at=datetime(2026, 3, 1, tzinfo=UTC),
    epoch=1,
    kind="start_run",
)


class History(S3History):
    """A history in a bucket in memory; it fails for some runs."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()
        super().__init__(self.bucket)
        self.purges = S3Purges(self.bucket)
        self.bad: dict[str, Exception] = {}
        self.tries: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def store(self, run: Run) -> None:
        self.tries.append(run.id)
        self.gate.wait(60)
        if run.id in self.bad:
            raise self.bad[run.id]
        super().store(run)


class Preparer:
    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def prepare(self, release: ReleaseOf) -> PipelineSpec:
        self.gate.wait(60)
        if self.trouble is not None:
            raise self.trouble
        return SPEC


class Renderer(Templates):
    """Templates that a test blocks or breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def render(self, run: Run) -> Run:
        self.gate.wait(60)
        if self.trouble is not None:
            raise self.trouble
        return super().render(run)


class Bench:
    def __init__(self) -> None:
        self.history, self.preparer, self.renderer = History(), Preparer(), Renderer()
        self.told: list[Event] = []
        self.resigned: list[str] = []
        self.unreadable: set[str] = set()
        self.read: list[str] = []
        self.probed: list[DataProbe] = []
        self.no_definition: Exception | None = None
        self.no_slots: Exception | None = None
        self.file: bytes | Exception | None = None
        self.archived: Run | None = None
        self.removed: set[AttemptId] = set()
        self.effects = Effects(
            read_run=self.read_run,
            read_slots=self.read_slots,
            history=self.history,
            preparer=self.preparer,
            definitions=self,
            renderer=self.renderer,
            prepare_run=prepare,
            open_file=self.open_file,
            probe=self.probe,
            sender=AlertSender(
                {}, cluster="c", public_url="", leads_in=lambda _: True, enqueue=self.told.append
            ),
            resign=lambda reason, _to: self.resigned.append(reason),
            enqueue=self.told.append,
        )

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        if self.no_definition is not None:
            raise self.no_definition
        return OnDisk().definition(release)

    def read_slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        if self.no_slots is not None:
            raise self.no_slots
        there = [attempt for attempt in attempts if attempt not in self.removed]
        return {attempt: Slots(end=end_of(attempt, result={"rows": 3})) for attempt in there}

    def open_file(self, reference: str, path: str) -> Iterator[bytes] | None:
        assert (reference, path) == ("p/p-1/plan/1", "items.jsonl")
        assert threading.current_thread().name.startswith("nimbus-probe-files")
        if isinstance(self.file, Exception):
            raise self.file
        return None if self.file is None else iter([self.file])

    def probe(self, probe: DataProbe) -> ProbeResult:
        self.probed.append(probe)
        self.renderer.gate.wait(60)
        if probe.address == "/broken":
            raise ValueError("test")
        return ProbeResult(True, "")

    def read_run(self, run_id: RunId) -> Run:
        self.read.append(run_id)
        if run_id in self.unreadable:
            raise UnreadableRecordError(f"/runs/{run_id}", "test")
        return self.archived or finished(run_id)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.history.gate.set()
    bench.preparer.gate.set()
    bench.renderer.gate.set()
    bench.effects.close()


def test_a_run_that_cannot_be_stored_holds_up_no_other_and_is_tried_again(
    bench: Bench, eventually: Eventually
) -> None:
    bench.history.bad["p-1"] = StoreUnavailableError("not now")
    bench.effects.start(ArchiveRun(RunId("p-1")))
    bench.effects.start(ArchiveRun(RunId("p-2")))

    eventually(lambda: RunArchived(RunId("p-2")) in bench.told)
    assert RunArchived(RunId("p-1")) not in bench.told
    bench.history.bad.clear()
    eventually(lambda: RunArchived(RunId("p-1")) in bench.told)
    assert bench.history.read(RunId("p-1")) == finished("p-1")


def test_a_run_that_no_history_can_hold_is_left_and_not_tried_for_ever(
    bench: Bench, eventually: Eventually
) -> None:
    bench.history.bad["p-1"] = ValueError("cannot be encoded")
    for run_id in ("p-1", "p-2", "p-3"):
        bench.effects.start(ArchiveRun(RunId(run_id)))

    eventually(lambda: len(bench.told) == 2)
    assert sorted(bench.history.tries) == ["p-1", "p-2", "p-3"]


def _keys(run: Run) -> list[str]:
    """The objects of a run, in the order in which they must be written."""
    name = str(place(run))
    indexes = (index_of(pipeline, state) for state in (run.state, None) for pipeline in (NAME, None))
    return [run_key(run.id), *(f"{index}{name}" for index in indexes)]


@pytest.mark.parametrize("failing", range(5))
def test_a_run_stays_until_each_of_its_writes_has_succeeded(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setattr(effects, "LONGEST_PAUSE_S", 0.01)
    run = replace(finished("p-1"), state=RunState.FAILED)
    key, later = _keys(run)[failing], _keys(run)[failing + 1 :]
    bench.archived = run
    bench.history.bucket.fail(key, BucketUnavailableError("not now"))
    bench.effects.start(ArchiveRun(run.id))

    eventually(lambda: len(bench.history.tries) > 1)
    assert bench.told == []
    assert not set(later).intersection(bench.history.bucket.writes), "an index before what it lists"
    bench.history.bucket.heal(key)
    eventually(lambda: bench.told == [RunArchived(run.id)])
    assert {info.key for info in bench.history.bucket.list("history/")} == set(_keys(run))


def test_runs_are_stored_at_the_same_time_and_hold_up_no_command(
    bench: Bench, eventually: Eventually
) -> None:
    runs = [RunId(f"p-{number}") for number in range(RUNS_AT_ONCE + 1)]
    bench.history.gate.clear()
    for run in runs:
        bench.effects.start(ArchiveRun(run))
    bench.effects.start(ArchiveOutcomes((REFUSAL,)))

    eventually(lambda: bench.told == [OutcomesArchived((REFUSAL.command,))])
    eventually(lambda: len(bench.history.tries) == RUNS_AT_ONCE)
    bench.history.gate.set()
    eventually(lambda: {RunArchived(run) for run in runs} <= set(bench.told))
    assert {run.id for run in bench.history.recent(NAME, 99).runs} == set(runs)


@pytest.mark.parametrize(
    ("trouble", "code"), [(RefusedError("no_definition", "x"), "no_definition"), (KeyError("x"), "internal")]
)
def test_a_release_that_cannot_be_had_is_told_with_its_code(
    bench: Bench, eventually: Eventually, trouble: Exception, code: str
) -> None:
    bench.preparer.trouble = trouble
    bench.effects.start(PrepareRelease(RELEASE))

    eventually(lambda: bench.told)
    (event,) = bench.told
    assert isinstance(event, ReleasePrepared)
    assert isinstance(event.result, Refusal)
    assert event.result.code == code


def test_refusals_are_stored_once_storage_is_back_and_then_told(bench: Bench, eventually: Eventually) -> None:
    bench.history.bucket.unavailable = True
    bench.effects.start(ArchiveOutcomes((REFUSAL,)))
    bench.effects.start(ResignLeadership("it goes on"))
    eventually(lambda: bench.resigned)
    assert bench.told == []

    bench.history.bucket.unavailable = False
    eventually(lambda: OutcomesArchived((REFUSAL.command,)) in bench.told)
    assert bench.history.outcomes(None, 9) == (REFUSAL,)


def test_a_slow_release_holds_up_no_archive(bench: Bench, eventually: Eventually) -> None:
    bench.preparer.gate.clear()
    bench.effects.start(PrepareRelease(RELEASE))
    bench.effects.start(ArchiveRun(RunId("p-1")))

    eventually(lambda: RunArchived(RunId("p-1")) in bench.told)
    bench.preparer.gate.set()
    eventually(lambda: ReleasePrepared(RELEASE, SPEC) in bench.told)


def test_a_slow_release_holds_up_no_other(bench: Bench, eventually: Eventually) -> None:
    quick, prepare = ReleaseOf(NAME, ReleaseDigest("b" * 64)), bench.preparer.prepare
    bench.preparer.gate.clear()
    bench.preparer.prepare = lambda release: SPEC if release == quick else prepare(release)  # type: ignore[method-assign]

    bench.effects.start(PrepareRelease(RELEASE))
    bench.effects.start(PrepareRelease(quick))

    eventually(lambda: bench.told == [ReleasePrepared(quick, SPEC)])
    bench.preparer.gate.set()
    eventually(lambda: len(bench.told) == 2)


def test_closing_ends_waiting_at_once_and_nothing_starts_afterwards(
    bench: Bench, eventually: Eventually
) -> None:
    bench.history.bad["p-1"] = StoreUnavailableError("not now")
    bench.effects.start(ArchiveRun(RunId("p-1")))
    eventually(lambda: len(bench.history.tries) > 1)
    bench.effects.close()
    eventually(lambda: not any(t.name.startswith("nimbus-archive") for t in threading.enumerate()))

    bench.effects.start(ArchiveRun(RunId("p-2")))
    bench.effects.start(ResignLeadership("late"))
    assert "p-2" not in bench.history.tries
    assert bench.resigned == []


WAITING = Key("command", "cmd-0")
TASK = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", args=("{{ ds }}",))
RECORD = active(replace(SPEC, name=PipelineName("q"), tasks=(TASK,)))
DRAFT = Draft(
    id=RunId("q-9"),
    pipeline=RECORD.name,
    release=RECORD.published,
    parameters={},
    logical_date=RECORD.updated_at,
    cause=RunCause.MANUAL,
    asked_at=RECORD.updated_at,
)


def test_a_run_is_built_and_its_result_told(bench: Bench, eventually: Eventually) -> None:
    bench.effects.start(BuildRun(WAITING, DRAFT))

    eventually(lambda: bench.told)
    (told,) = bench.told
    assert isinstance(told, RunBuilt)
    assert isinstance(told.built.result, Run)
    assert (told.key, told.built.draft) == (WAITING, DRAFT)
    assert told.built.result.tasks[TaskName("a")].spec.args == ("2026-03-01",)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (
            TemplateError("too costly"),
            RunBuilt(WAITING, Built(DRAFT, Refusal("template", "too costly"))),
        ),
        (defect := RuntimeError("a defect"), BuildingFailed(WAITING, DRAFT, defect)),
    ],
    ids=["its own fault", "a defect"],
)
def test_a_draft_is_refused_for_its_own_faults_only(
    bench: Bench, eventually: Eventually, trouble: Exception, told: Event
) -> None:
    bench.renderer.trouble = trouble
    bench.effects.start(BuildRun(WAITING, DRAFT))

    eventually(lambda: bench.told)
    assert bench.told == [told]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (
            RefusedError("no_definition", "it has none"),
            RunBuilt(WAITING, Built(DRAFT, Refusal("no_definition", "it has none"))),
        ),
        (not_here := DefinitionNotHereError(RELEASE), BuildingFailed(WAITING, DRAFT, not_here)),
    ],
    ids=["never", "not now"],
)
def test_a_run_of_a_release_that_can_never_be_used_is_refused(
    bench: Bench, eventually: Eventually, trouble: Exception, told: Event
) -> None:
    bench.no_definition = trouble
    bench.effects.start(BuildRun(WAITING, DRAFT))

    eventually(lambda: bench.told)
    assert bench.told == [told]


def test_a_slow_template_holds_up_neither_releases_nor_history(bench: Bench, eventually: Eventually) -> None:
    bench.renderer.gate.clear()
    bench.effects.start(BuildRun(WAITING, DRAFT))
    bench.effects.start(PrepareRelease(RELEASE))
    bench.effects.start(ArchiveRun(RunId("p-1")))

    eventually(lambda: len(bench.told) == 2)
    assert not any(isinstance(event, RunBuilt) for event in bench.told)
    bench.renderer.gate.set()


def test_a_run_whose_record_cannot_be_read_is_left_and_not_tried_for_ever(
    bench: Bench, eventually: Eventually
) -> None:
    bench.unreadable.add("p-1")
    bench.effects.start(ArchiveRun(RunId("p-1")))
    bench.effects.start(ArchiveRun(RunId("p-2")))

    eventually(lambda: RunArchived(RunId("p-2")) in bench.told)
    assert (bench.history.tries, bench.read) == (["p-2"], ["p-1", "p-2"])


def test_release_of_a_child_run_is_fetched_when_it_is_not_on_this_disk(
    bench: Bench, eventually: Eventually
) -> None:
    spec = parent(ChildSpec(pipeline=RECORD.name, parameters={}))
    run = replace(finished("p-1"), tasks=Tasks(TaskRun(spec=task) for task in spec.tasks))
    link = Parent(run=run.id, top=run.id, task=spec.tasks[0].name, attempt=1, index=0, depth=1)
    child = replace(DRAFT, parent=link)
    bench.no_definition = DefinitionNotHereError(RELEASE)
    bench.preparer.gate.clear()
    bench.effects.start(BuildRun(WAITING, child, run))
    bench.effects.start(ArchiveRun(RunId("p-2")))
    eventually(lambda: RunArchived(RunId("p-2")) in bench.told)

    bench.no_definition = None
    bench.preparer.gate.set()

    eventually(lambda: len(bench.told) == 2)
    told = bench.told[1]
    assert isinstance(told, RunBuilt)
    assert isinstance(told.built.result, Run)
    assert (told.built.result.parent, told.built.draft) == (link, child)


def test_child_run_whose_release_cannot_be_had_is_refused(bench: Bench, eventually: Eventually) -> None:
    child = replace(
        DRAFT, parent=Parent(run=RunId("p"), top=RunId("p"), task=TaskName("a"), attempt=1, index=0, depth=1)
    )
    bench.no_definition = DefinitionNotHereError(RELEASE)
    bench.preparer.trouble = RefusedError("release_absent", "storage does not have it")
    bench.effects.start(BuildRun(WAITING, child, finished("p")))

    eventually(lambda: bench.told)
    refusal = Refusal("release_absent", "storage does not have it")
    assert bench.told == [RunBuilt(WAITING, Built(child, refusal))]


def end_of(attempt: AttemptId, result: dict[str, Any]) -> End:
    now = DRAFT.asked_at
    return End(attempt=str(attempt), outcome=Outcome.SUCCEEDED, written_by="t", ended_at=now, result=result)


def reading(argument: str, children: ChildSpec | None = None) -> RenderTask:
    """Render a task that reads the result of a succeeded task, or starts child runs."""
    plan = TaskSpec(name=TaskName("plan"), kind=TaskKind.PYTHON, script="plan.py")
    load = TaskSpec(
        name=TaskName("load"), kind=TaskKind.PYTHON, script="load.py", args=(argument,), reads=(plan.name,)
    )
    load = replace(load, children=children)
    run = replace(
        finished("p-1"),
        state=RunState.RUNNING,
        tasks=Tasks([TaskRun(spec=plan), TaskRun(spec=load)]),
    )
    run = lifecycle.open_attempt(run, plan.name, worker=WorkerId("w"), epoch=1, now=DRAFT.asked_at)
    attempt = AttemptId(run.id, plan.name, 1)
    end = replace(end_of(attempt, {"rows": 3}), output="p/p-1/plan/1")
    return RenderTask(
        lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=1, now=DRAFT.asked_at),
        load.name,
    )


def test_task_is_rendered_with_the_results_in_the_ends_of_those_that_it_reads(
    bench: Bench, eventually: Eventually
) -> None:
    bench.effects.start(reading("{{ tasks.plan.result.rows }} rows"))

    eventually(lambda: bench.told)
    (event,) = bench.told
    assert isinstance(event, TaskRendered)
    assert isinstance(event.result, TaskSpec)
    assert event.result.args == ("3 rows",)


def test_task_whose_template_is_at_fault_is_refused(bench: Bench, eventually: Eventually) -> None:
    bench.effects.start(reading("{{ tasks.plan.result.rows.x }}"))

    eventually(lambda: bench.told)
    (event,) = bench.told
    assert isinstance(event, TaskRendered)
    assert isinstance(event.result, Refusal)


def test_task_is_rendered_later_when_results_cannot_be_read_now(bench: Bench, eventually: Eventually) -> None:
    bench.no_slots = StoreUnavailableError("no answer")
    bench.effects.start(reading("{{ tasks.plan.result.rows }}"))

    eventually(lambda: bench.told)
    assert bench.told == [RenderingFailed(RunId("p-1"), TaskName("load"), bench.no_slots)]


def test_items_of_a_file_are_read_by_a_thread_that_may_hang(bench: Bench, eventually: Eventually) -> None:
    children = ChildSpec(
        pipeline=PipelineName("q"), for_each={"x": "{{ tasks.plan.output }}/items.jsonl", "y": (1, 2)}
    )
    away = StoreUnavailableError("no answer")
    for bench.file in (b"3\n4\n", None, OutputsNotHereError("it has no folder"), away):
        bench.effects.start(reading("", children))
        eventually(lambda: bench.told)
        (event,) = bench.told
        bench.told.clear()
        if isinstance(bench.file, bytes):
            assert isinstance(event, TaskRendered)
            assert isinstance(event.result, TaskSpec)
            assert event.result.children == replace(children, for_each={"x": (3, 4), "y": (1, 2)})
        elif bench.file is away:
            assert event == RenderingFailed(RunId("p-1"), TaskName("load"), away)
        else:
            assert isinstance(event, TaskRendered)
            assert isinstance(event.result, Refusal)


FILE, URL = DataProbe(DataSource.FILE, "/there"), DataProbe(DataSource.HTTP, "http://host/there")


def test_equal_probes_are_one_while_it_is_under_way(bench: Bench, eventually: Eventually) -> None:
    bench.renderer.gate.clear()
    for _ in range(3):
        bench.effects.start(ProbeData(FILE))
    bench.renderer.gate.set()

    eventually(lambda: bench.told == [DataSeen(FILE, ProbeResult(True, ""))])
    bench.effects.start(ProbeData(FILE))
    eventually(lambda: bench.probed == [FILE, FILE])


def test_files_that_hang_hold_up_no_other_look(bench: Bench, eventually: Eventually) -> None:
    bench.renderer.gate.clear()
    for number in range(5):
        bench.effects.start(ProbeData(DataProbe(DataSource.FILE, f"/{number}")))
    bench.effects.start(ProbeData(URL))

    eventually(lambda: URL in bench.probed)
    bench.renderer.gate.set()


def test_a_probe_that_fails_for_no_known_reason_is_told_as_not_there(
    bench: Bench, eventually: Eventually
) -> None:
    broken = DataProbe(DataSource.FILE, "/broken")
    bench.effects.start(ProbeData(broken))

    eventually(lambda: bench.told == [DataSeen(broken, ProbeResult(False, "ValueError('test')"))])


def test_results_of_a_run_go_to_history_with_it(bench: Bench, eventually: Eventually) -> None:
    bench.archived = reading("").run
    bench.effects.start(ArchiveRun(RunId("p-1")))

    eventually(lambda: bench.told)
    assert bench.history.given(RunId("p-1")).results == {"plan": {"rows": 3}}


def test_results_in_history_stay_when_the_next_leader_archives_a_run_without_its_attempts(
    bench: Bench, eventually: Eventually
) -> None:
    run = reading("").run
    again = replace(run.tasks[TaskName("plan")], spec=replace(run.tasks[TaskName("plan")].spec, name=SECOND))
    bench.archived = replace(run, tasks=Tasks([*run.tasks.values(), again]))
    bench.effects.start(ArchiveRun(run.id))
    eventually(lambda: len(bench.told) == 1)

    bench.removed.add(AttemptId(run.id, SECOND, 1))
    bench.effects.start(ArchiveRun(run.id))
    eventually(lambda: len(bench.told) == 2)

    assert bench.history.given(run.id).results == {"plan": {"rows": 3}, "second": {"rows": 3}}


def a_rerun(of: str = "p-0") -> BuildRun:
    selection = Selection(scope=Scope.ALL, reuse=RunId(of), is_rerun=True)
    return BuildRun(Key("command", "cmd-1"), replace(DRAFT, selection=selection))


def built_by(bench: Bench) -> Run | Refusal | None:
    (told,) = (event for event in bench.told if isinstance(event, RunBuilt))
    return told.built.result


def test_release_of_a_rerun_is_fetched_when_it_is_not_here(bench: Bench, eventually: Eventually) -> None:
    bench.no_definition = DefinitionNotHereError(RELEASE)
    prepare = bench.preparer.prepare

    def fetched(release: ReleaseOf) -> PipelineSpec:
        bench.no_definition = None
        return prepare(release)

    bench.preparer.prepare = fetched  # type: ignore[method-assign]
    bench.archived = replace(finished("p-0"), pipeline=RECORD.name)
    bench.effects.start(a_rerun())

    eventually(lambda: bool(bench.told))
    run = built_by(bench)
    assert isinstance(run, Run)
    assert run.rerun_of == "p-0"


def test_rerun_is_refused_when_its_release_cannot_be_had(bench: Bench, eventually: Eventually) -> None:
    bench.no_definition = DefinitionNotHereError(RELEASE)
    bench.preparer.trouble = RefusedError("release_absent", "storage does not have it")
    bench.effects.start(a_rerun())

    eventually(lambda: bool(bench.told))
    refusal = built_by(bench)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.message) == ("release_absent", "storage does not have it")


def test_run_that_uses_a_live_one_is_refused(bench: Bench, eventually: Eventually) -> None:
    bench.archived = replace(finished("p-0"), pipeline=RECORD.name, state=RunState.RUNNING)
    bench.effects.start(a_rerun())

    eventually(lambda: bool(bench.told))
    refusal = built_by(bench)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "run_live"


PURGE = CommandId("cmd-0000000007")


def reusing(run_id: str, reused: Reused) -> Run:
    spec = TaskSpec(name=SECOND, kind=TaskKind.PYTHON, script="s.py")
    return replace(finished(run_id), tasks=Tasks([TaskRun(spec=spec, reused=reused)]))


def an_order(run_id: str, *parts: RunPart) -> PurgeOrder:
    what = PurgeRuns(parts=parts, reason="space", run_id=RunId(run_id))
    return PurgeOrder(what=what, at=datetime(2026, 3, 1, tzinfo=UTC), by="ann")


def test_purge_is_stored_before_its_command_is_answered_also_when_storage_is_away_at_first(
    bench: Bench, eventually: Eventually
) -> None:
    bench.history.store(finished("p-1"))
    bench.history.bucket.unavailable = True
    order = an_order("p-1", RunPart.HISTORY)
    bench.effects.start(StorePurge(PURGE, order))
    eventually(lambda: bench.effects._failures > 0)
    assert bench.told == []

    bench.history.bucket.unavailable = False

    eventually(lambda: bench.told == [StoredForCommand(PURGE, None)])
    assert dict(bench.history.purges.orders()) == {PURGE: order}


def test_purge_of_a_run_that_is_unknown_or_reused_is_refused(bench: Bench, eventually: Eventually) -> None:
    later = reusing("p-2", Reused(run=RunId("p-1"), attempt=None))
    for run in (finished("p-1"), later):
        bench.history.store(run)
    for run_id, parts in (("nobody", RunPart.LOGS), ("p-1", RunPart.OUTPUTS), ("p-1", RunPart.LOGS)):
        bench.effects.start(StorePurge(PURGE, an_order(run_id, parts)))

    eventually(lambda: len(bench.told) == 3)

    answers = [event.answer for event in bench.told if isinstance(event, StoredForCommand)]
    assert [answer.code if answer else None for answer in answers] == ["unknown_run", "run_reused", None]


def test_scheduled_run_that_may_exist_is_refused_if_it_does(bench: Bench, eventually: Eventually) -> None:
    bench.effects.start(BuildRun(Key("pipeline", "p"), replace(DRAFT, may_exist=True)))

    eventually(lambda: bool(bench.told))

    assert built_by(bench) == Refusal("run_exists", f"run {DRAFT.id} exists already")


def test_slow_history_holds_up_no_run_that_cannot_exist(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(EarlierRuns, "check_none", lambda *_: gate.wait(20))
    bench.effects.start(BuildRun(Key("backfill", "b"), replace(DRAFT, may_exist=True)))
    bench.effects.start(BuildRun(Key("pipeline", "p"), DRAFT))

    eventually(lambda: bool(bench.told))
    assert [event.key.kind for event in bench.told if isinstance(event, RunBuilt)] == ["pipeline"]
    gate.set()
    eventually(lambda: len(bench.told) == 2)


def test_run_exists_if_history_has_it_or_its_purge() -> None:
    history, (known, purged) = History(), (finished("p-1"), finished("p-2"))
    runs = EarlierRuns(lambda _: None, lambda _: {}, history)
    history.store(known)
    note = Purged(run=purged.id, pipeline=NAME, created_at=purged.created_at)
    history.purges.note(note.with_parts(RunPart, an_order("p-2").said))

    runs.check_none(RunId("p-3"))
    for run in (known.id, purged.id):
        with pytest.raises(RefusedError, match=f"run {run} exists already"):
            runs.check_none(run)
    history.bucket.unavailable = True
    with pytest.raises(NimbusError):
        runs.check_none(RunId("p-3"))


def test_versions_of_commands_are_stored_although_storage_is_away_at_first(
    bench: Bench, eventually: Eventually
) -> None:
    name, at = DatasetName("landing"), datetime(2026, 3, 1, tzinfo=UTC)
    version = Version(partition="", number=7, at=at, outside=OutsideData(uri="s3://in/1"))
    bench.history.bucket.unavailable = True
    bench.effects.start(StoreVersions(PURGE, name, (version,)))
    bench.history.bucket.unavailable = False

    eventually(lambda: bench.told == [StoredForCommand(PURGE, (version,))])
    assert bench.history.versions(name, 10) == (version,)


def test_run_does_not_reuse_outputs_that_are_purged() -> None:
    history = History()
    attempt = Attempt(
        number=1, worker=WorkerId("w"), opened_at=finished("p-1").created_at, opened_by_epoch=1, output="o"
    )
    reused = Reused(run=RunId("p-1"), attempt=attempt)
    earlier, run = finished("p-1"), reusing("p-2", reused)
    runs = EarlierRuns(lambda _: None, lambda _: {}, history)
    runs.check_outputs(earlier, run)
    note = Purged(run=earlier.id, pipeline=NAME, created_at=earlier.created_at)
    said = an_order("p-1").said
    history.purges.note(note.with_parts([RunPart.LOGS], said))
    runs.check_outputs(earlier, run)

    history.purges.note(note.with_parts([RunPart.OUTPUTS], said))
    history.bucket.unavailable = True
    EarlierRuns(lambda _: earlier, lambda _: {}, history).check_outputs(earlier, run)  # it is in ZooKeeper
    history.bucket.unavailable = False

    with pytest.raises(RefusedError, match="purged on 2026-03-01 by ann") as refused:
        runs.check_outputs(earlier, run)
    assert refused.value.code == "outputs_purged"
    history.purges.note(note.with_parts(RunPart, said))
    with pytest.raises(RefusedError, match="run p-1 was purged on"):
        runs.find(earlier.id, NAME)


def test_run_does_not_keep_pins_whose_outputs_are_purged() -> None:
    history, source = History(), AttemptId(RunId("p-1"), TaskName("a"), 1)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    pinned = Version(
        partition="", number=1, run=source.run, task=source.task, source=source, output="o", at=now
    )
    run = replace(finished("p-3"), pins={"sums": (pinned, replace(pinned, source=NO_SOURCE, output=None))})
    runs = EarlierRuns(lambda _: None, lambda _: {}, history)
    runs.check_outputs(finished("p-2"), run)
    note = Purged(run=source.run, pipeline=NAME, created_at=now)
    history.purges.note(note.with_parts([RunPart.OUTPUTS], an_order("p-1").said))

    with pytest.raises(RefusedError, match="run p-2 has read them, and so would this one") as refused:
        runs.check_outputs(finished("p-2"), run)
    assert refused.value.code == "outputs_purged"
