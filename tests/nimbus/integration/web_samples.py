"""Runs of many shapes for the tests of the pages, on the small cluster in memory of the integration tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from nimbus.definition.backfill_dates import dates_left, interval_of_date
from nimbus.domain.cluster.access import AccessRole, Principal, PrincipalSource
from nimbus.domain.cluster.terms import Adopted, EndCause, Leader, begun, ended
from nimbus.domain.commands import CommandOutcome, CordonWorker, PausePipeline, StopRun
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import (
    Change,
    OutsideData,
    Partitioning,
    Publication,
    Read,
    Version,
    interval_text,
)
from nimbus.domain.ids import (
    AttemptId,
    BackfillId,
    CommandId,
    DatasetName,
    PipelineName,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest, Reprocess
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    ParameterSpec,
    PipelineSpec,
    Retries,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.run import DataCause, Run, RunCause, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from tests.nimbus.definitions import active, on_disk

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{7*7}}\x1b[31m</pre></title>\u202e"""
"""A text that harms a page that does not escape it."""


def layered(count: int, seed: int = 7) -> list[TaskSpec]:
    """Tasks in layers of about ten. Each needs one to three tasks of the previous layer."""
    dice, names = random.Random(seed), [TaskName(f"task-{number:04d}") for number in range(count)]
    wide = max(3, min(12, count // 6))
    specs = []
    for number, name in enumerate(names):
        layer = number // wide
        before = names[(layer - 1) * wide : layer * wide] if layer else []
        needs = tuple(sorted(dice.sample(before, min(len(before), dice.choice((1, 1, 2, 3))))))
        specs.append(TaskSpec(name=name, kind=TaskKind.PYTHON, script="t.py", needs=needs))
    return specs


def fan(count: int) -> list[TaskSpec]:
    """One task, then many similar ones, then one that needs them all."""
    middle = [TaskName(f"part-{number:04d}") for number in range(count)]
    plain = {"kind": TaskKind.PYTHON, "script": "t.py"}
    return [
        TaskSpec(name=TaskName("split"), **plain),  # type: ignore[arg-type]
        *(TaskSpec(name=name, needs=(TaskName("split"),), **plain) for name in middle),  # type: ignore[arg-type]
        TaskSpec(name=TaskName("join"), needs=tuple(middle), **plain),  # type: ignore[arg-type]
    ]


def tried(spec: TaskSpec, state: TaskState, began: datetime, took: timedelta, reason: str = "") -> TaskRun:
    """A task that is in `state`, after one attempt if that takes one."""
    if state in (TaskState.WAITING, TaskState.SKIPPED, TaskState.NOT_RUN):
        return TaskRun(spec=spec, state=state)
    ended = {
        TaskState.SUCCEEDED: {"outcome": Outcome.SUCCEEDED, "exit_code": 0},
        TaskState.FAILED: {"outcome": Outcome.FAILED, "exit_code": 1, "reason": reason or "exit 1"},
        TaskState.RUNNING: {},
    }[state]
    attempt = Attempt(
        number=1,
        worker=WorkerId("w1"),
        opened_at=began,
        opened_by_epoch=7,
        started_at=began + took / 10,
        ended_at=began + took if ended else None,
        **ended,  # type: ignore[arg-type]
    )
    return TaskRun(spec=spec, state=state, attempts=(attempt,))


def part_done(world: Any, run_id: str, specs: list[TaskSpec], share: float = 0.6, **changes: Any) -> Run:
    """A live run whose first tasks have succeeded. Of the next tasks, one has failed and two run."""
    done = int(len(specs) * share)
    start, step = world.clock.now() - timedelta(minutes=20), timedelta(seconds=900 / len(specs))
    tasks = []
    for number, spec in enumerate(specs):
        state = TaskState.SUCCEEDED if number < done else TaskState.WAITING
        if number in (done, done + 1):
            state = TaskState.RUNNING
        if number == done - 1 and len(specs) > 3:
            state = TaskState.FAILED
        tasks.append(tried(spec, state, start + step * number, step * 3))
    run = world.new_run(
        run_id, tasks=Tasks(tasks), created_at=start - timedelta(seconds=9), started_at=start, **changes
    )
    live: Run = world.put_live(run)
    return live


def finished(world: Any, run_id: str, specs: list[TaskSpec], *, hours_ago: float, slower: float = 1.0) -> Run:
    """A run that has succeeded."""
    start = world.clock.now() - timedelta(hours=hours_ago)
    step = timedelta(seconds=300 / len(specs)) * slower
    tasks = [tried(spec, TaskState.SUCCEEDED, start + step * n, step * 2) for n, spec in enumerate(specs)]
    run = world.new_run(
        run_id,
        tasks=Tasks(tasks),
        state=RunState.SUCCEEDED,
        created_at=start,
        started_at=start,
        finished_at=start + step * (len(specs) + 1),
        parameters={"day": "2026-02-28", "limit": 100},
    )
    world.cluster.put(run)
    return run


def hostile(world: Any, run_id: str = "hostile-1") -> Run:
    """A run with a harmful text in every place that accepts any text."""
    specs = [replace(spec, args=(HOSTILE,), script=HOSTILE, retries=Retries(limit=2)) for spec in layered(4)]
    start = world.clock.now()
    states = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.RUNNING, TaskState.WAITING)
    tasks = [
        tried(spec, state, start, timedelta(minutes=1), HOSTILE)
        for spec, state in zip(specs, states, strict=True)
    ]
    run = world.new_run(
        run_id,
        tasks=Tasks(tasks),
        parameters={HOSTILE: HOSTILE},
        variables={HOSTILE: HOSTILE},
        note=HOSTILE,
        reason=HOSTILE,
        submitted_by=HOSTILE,
        selected=HOSTILE,
    )
    world.put_live(run)
    for number in (0, 1, 2):
        world.logs.append(AttemptId(run.id, specs[number].name, 1), 0, f"{HOSTILE}\n".encode() * 20)
    return run


def pipeline(
    world: Any, name: str, of: Sequence[TaskSpec] = tuple(layered(5)), **changes: Any
) -> PipelineRecord:
    """A pipeline with a schedule, a parameter of each kind, and the tasks `of`."""
    spec = PipelineSpec(
        name=PipelineName(name),
        description="Counts what came in",
        schedule=Schedule(cron="0 6 * * *", timezone="Europe/Berlin", catchup=CatchUp.LATEST),
        parameters={
            "day": ParameterSpec(type="string", required=True, description="The day to count"),
            "note": ParameterSpec(type="string", default="as always"),
            "limit": ParameterSpec(type="integer", default=100, minimum=1, maximum=500),
            "strict": ParameterSpec(type="boolean", default=True),
            "region": ParameterSpec(type="string", choices=("eu", "us"), default="eu"),
        },
        tasks=tuple(of),
    )
    record = active(spec, **{"schedule_position": world.clock.now(), **changes})
    world.cluster.put(record)
    return record


def backfill(world: Any, of: PipelineRecord, name: str, **changes: Any) -> Backfill:
    """A backfill of ten days of a pipeline that fires daily; three runs were started, one date was skipped.

    Its runs of the first two dates have ended, that of the third is live, and the fourth date had a run.
    """
    now = world.clock.now()
    request = BackfillRequest(
        first=now - timedelta(days=10), last=now, max_parallel=2, reprocess=Reprocess.FAILED, total=10
    )
    made: dict[str, Any] = {
        "id": BackfillId(name),
        "pipeline": of.name,
        "release": of.release,
        "schedule": of.profile.schedule,
        "request": request,
        "created_at": now - timedelta(hours=1),
        "created_by": "ann",
        "started": 3,
        "succeeded": 1,
        "failed": 1,
        "skipped": 1,
    }
    found = Backfill(**made | changes)
    index, dates = IntervalIndex(begins=now - timedelta(days=99)), list(dates_left(found))
    states = (RunState.SUCCEEDED, RunState.FAILED, RunState.RUNNING, RunState.SUCCEEDED)
    for number, (state, date) in enumerate(zip(states, dates, strict=False)):
        interval = interval_of_date(found, date)
        run_id = "by-schedule" if number == 3 else found.run_id(date)
        run = world.new_run(
            run_id, pipeline=of.name, backfill=found.id, data_interval=interval, started_at=now, state=state
        )
        if state is RunState.RUNNING:
            world.cluster.put(run)
        else:
            ended_at = now - timedelta(hours=2) if number == 3 else now
            run = replace(run, finished_at=ended_at)
            world.history.store(run)
            index = index.with_run(run)
        found = replace(found, position=date)
    world.cluster.set("intervals", of.name, index)
    world.cluster.put(found)
    return found


def terms(world: Any, count: int = 3) -> None:
    """Terms that ended in different ways, and a current one; one has a harmful text."""
    began = world.clock.now() - timedelta(hours=count)
    before = None
    for number in range(count):
        leader = Leader(id=f"s{1 + number % 2}", host="h", boot_id=f"boot-s{1 + number % 2}", version="0.1.0")
        term = begun(leader, max(7, count) - count + 1 + number, before, began + timedelta(hours=number))
        term = replace(
            term,
            takeover_s=0.25,
            adopted=Adopted(runs=2, claimed=3, unclaimed=1, ended=1, fenced=1),
            decisions=12,
        )
        if number < count - 1:
            cause = (EndCause.HANDED_OVER, EndCause.DIED, EndCause.STOPPED)[number % 3]
            reason = HOSTILE if cause is EndCause.HANDED_OVER else ""
            term = ended(term, cause, term.began_at + timedelta(minutes=59), reason=reason, by="ann")
            if cause is EndCause.DIED and term.end is not None:
                term = replace(term, end=replace(term.end, by="", noted_by=term.epoch + 1))
        world.cluster.put(term)
        before = term


def catalog(world: Any) -> None:
    """Pipelines in every state. One has a harmful text in every place that accepts any text."""
    pipeline(world, "daily")
    pipeline(world, "resting", state=PipelineState.PAUSED, published="9" * 64, owner="data-team")
    pipeline(world, "new", state=PipelineState.INACTIVE, release=None)
    harmful = {HOSTILE: ParameterSpec(type="string", default=HOSTILE, description=HOSTILE)}
    spec = PipelineSpec(
        name=PipelineName("hostile"), description=HOSTILE, parameters=harmful, tasks=tuple(layered(2))
    )
    world.cluster.put(active(spec, owner=HOSTILE))
    world.cluster.put(replace(world.health.me, quarantined={"hostile": HOSTILE}, last_abdication=HOSTILE))


DAYS, REGIONS, REPORT = DatasetName("days"), DatasetName("regions"), DatasetName("report")


def datasets(world: Any, days: int = 30) -> None:
    """A late dataset by interval with two missing days, one by key, and a run that has pinned both."""
    load = layered(1)[0]
    publications = (
        Publication(dataset=DAYS, partition=Partitioning.INTERVAL),
        Publication(dataset=REGIONS, partition=Partitioning.KEY, key="eu"),
    )
    shop = PipelineSpec(
        name=PipelineName("shop"),
        schedule=Schedule(cron="@daily", timezone="Europe/Berlin"),
        fresh={DAYS: timedelta(hours=26)},
        tasks=(replace(load, publishes=publications),),
    )
    reads = (Read(name="orders", dataset=DAYS), Read(name="regions", dataset=REGIONS))
    made = Publication(dataset=REPORT)
    report = PipelineSpec(
        name=PipelineName("report"),
        reads=reads,
        tasks=(replace(load, publishes=(made,), uses=("orders", "regions")),),
    )
    world.cluster.put(active(shop, updated_at=world.clock.now() - timedelta(days=90)))
    world.cluster.put(active(report))
    run = part_done(world, "report-1", list(report.tasks), share=1, reads=reads)
    midnight = world.clock.now().replace(hour=23, minute=0) - timedelta(days=3)  # in Berlin
    of_days = Dataset(name=DAYS, pipeline=shop.name, partition=Partitioning.INTERVAL)
    of_regions = Dataset(name=REGIONS, pipeline=shop.name, partition=Partitioning.KEY)
    for ago in range(days, 0, -1):
        if ago in (3, 4) and days > 4:
            continue
        end = midnight - timedelta(days=ago - 1)
        interval = DataInterval(start=end - timedelta(days=1), end=end)
        of_days = of_days.with_version(
            version(f"shop-{ago}", interval_text(interval), days - ago + 1, end), lambda _: True
        )
    for number, key in enumerate(("eu", "us")):
        of_regions = of_regions.with_version(version("shop-1", key, number + 1, midnight), lambda _: True)
    of_regions = of_regions.with_version(
        Version(
            partition="apac",
            number=3,
            outside=OutsideData(uri=HOSTILE),
            change=Change(command=CommandId("cmd-1"), by=HOSTILE),
            at=midnight,
        ),
        lambda _: True,
    )
    for found in (of_days, of_regions):
        world.cluster.set("datasets", found.name, found)
    for ago in range(1, days + 1):
        finished(world, f"shop-{ago}", [load], hours_ago=24 * ago)
    pins = {"orders": of_days.versions[-3:], "regions": of_regions.versions}
    cause = DataCause(
        dataset=DAYS, partition=of_days.versions[-1].partition, number=days, run=RunId("shop-1"), at=midnight
    )
    world.put_live(replace(run, pins=pins, causes=(cause,), cause=RunCause.DATA))


def version(run: str, partition: str, number: int, at: datetime) -> Version:
    """A version that the first task of a run published."""
    task = TaskName("task-0000")
    return Version(
        partition=partition,
        number=number,
        run=RunId(run),
        task=task,
        source=AttemptId(RunId(run), task, 1),
        output=f"shop/{run}/{task}/1",
        at=at,
    )


def commands(world: Any) -> None:
    """Waiting commands, and commands that were decided recently and long ago, with harmful texts."""
    asks = Principal(
        name="ann",
        role=AccessRole.ADMIN,
        source=PrincipalSource.TOKEN,
        token_id="tk-1",
        address="10.0.0.7",
        reason=HOSTILE,
    )
    world.queue.submit(StopRun(run_id=RunId("sums-live"), reason=HOSTILE), submitted_by="ann", asked_by=asks)
    world.queue.submit(CordonWorker(worker=WorkerId("w1"), reason="disk"), submitted_by=HOSTILE)
    world.queue.submit(PausePipeline(pipeline=PipelineName("daily")), submitted_by="bob")
    decided = [
        CommandOutcome(
            command=CommandId(f"cmd-{number:010d}"),
            accepted=bool(number % 3),
            code="ok" if number % 3 else "busy",
            message=HOSTILE if number == 3 else "run sums-old is being stopped",
            decided_at=world.clock.now() - timedelta(hours=number),
            epoch=5,
            kind="stop_run" if number % 2 else "pause_pipeline",
            pipeline=PipelineName("sums"),
            names={"run": "sums-old"} if number % 2 else {},
            submitted_by="ann" if number % 2 else "bob",
            asked_by=asks,
        )
        for number in range(120)
    ]
    world.history.store_outcomes(decided)


HOSTILE_NAME = "<img src=x onerror=alert(3)>'\".py"
"""A harmful text for file names, without slashes and control characters."""


def releases(world: Any) -> list[ReleaseOf]:
    """Two releases of `daily`, the newer one active, with harmful texts; and one only in storage."""
    text = "\n".join(f"line {number}" for number in range(30))
    old = world.releases.publish("daily", {"load.py": text.encode(), "gone.py": b"x", "m.bin": b"\0"})
    new = {"load.py": f"{text}\n{HOSTILE}".encode(), HOSTILE_NAME: HOSTILE.encode(), "m.bin": b"\0\1"}
    found = [old, world.releases.publish("daily", new)]
    found.append(world.releases.publish("daily", {"load.py": b""}, here=False))
    record = world.reader.pipeline("daily")
    spec = world.services().definitions.definition(ReleaseOf(record.name, record.release))
    tasks = (replace(spec.tasks[0], script=HOSTILE, when=HOSTILE), *spec.tasks[1:])
    on_disk(found[0], spec)
    on_disk(found[1], replace(spec, description=HOSTILE, tasks=tasks))
    world.cluster.put(replace(record, release=found[1].digest, published=found[1].digest))
    return found


def dated(
    world: Any, days: int = 20, gaps: Sequence[int] = (4, 5, 12), of: Sequence[TaskSpec] = ()
) -> PipelineRecord:
    """A pipeline that fires daily at 06:00 in Berlin, with its runs of the last days. `gaps`: in days ago.

    Every sixth run failed in its second task, that of nine days ago is of a backfill, and one is by hand.
    """
    specs = list(of) or layered(5)
    record = pipeline(world, "daily", specs)
    index = IntervalIndex(world.clock.now() - timedelta(days=1000))
    last = world.clock.now().date()
    for ago in range(days, -1, -1):
        if ago in gaps:
            continue
        date = datetime.combine(last - timedelta(days=ago), time(6), ZoneInfo("Europe/Berlin"))
        run = finished(world, f"daily-{ago:03d}", specs, hours_ago=24 * ago + 1, slower=1 + ago % 7 / 7)
        cause = RunCause.BACKFILL if ago == 9 else RunCause.SCHEDULE
        changes: dict[str, Any] = {"pipeline": record.name, "logical_date": date, "cause": cause}
        changes["data_interval"] = DataInterval(start=date - timedelta(days=1), end=date)
        if ago % 6 == 2:
            tasks = [
                tried(spec, state, run.created_at, timedelta(minutes=2))
                for state, spec in zip((TaskState.SUCCEEDED, TaskState.FAILED), specs, strict=False)
            ] + [tried(spec, TaskState.NOT_RUN, run.created_at, timedelta()) for spec in specs[2:]]
            changes |= {"state": RunState.FAILED, "tasks": Tasks(tasks)}
        run = replace(run, **changes)
        world.cluster.put(run)
        index = index.with_run(run)
    by_hand = finished(world, "daily-by-hand", specs, hours_ago=60 + 24 * (days < 9))
    world.cluster.put(replace(by_hand, pipeline=record.name, logical_date=by_hand.created_at))
    world.cluster.set("intervals", record.name, index)
    return record
