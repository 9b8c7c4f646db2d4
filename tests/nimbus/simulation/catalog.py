"""The pipelines of the simulated cluster: small, and each with a different rule for how a run ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule
from nimbus.domain.cluster.schema import NEWEST_SCHEMA as NEWEST
from nimbus.domain.data.publications import Accepted, Partitioning, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest, TaskName
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf, profile_of
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Concurrency,
    DataStart,
    FailureStrategy,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Retries,
    Schedule,
    SparkDeploy,
    SparkPlace,
    TaskKind,
    TaskSpec,
    TriggerRule,
    WhenFull,
)
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.starts.due import Due, consumer_of
from nimbus.domain.starts.waits import SELF, DataSource, DataWait, OnFailed, PipelineWait
from tests.nimbus.simulation.clocks import START

FIRST, SECOND = ReleaseDigest("1" * 64), ReleaseDigest("2" * 64)
MISSING = ReleaseDigest("f" * 64)
"""A release that storage does not have."""


TARGET, TARGET_SLOTS = "big", 2
"""A label that all workers have."""


def _task(
    name: str,
    needs: str = "",
    *,
    retries: int = 1,
    priority: Priority = Priority.MEDIUM,
    place: SparkPlace | None = None,
    asks: TriggerRule = TriggerRule.SUCCEEDED,
    allow_failure: bool = False,
    pools: Mapping[str, int] | None = None,
    start_after: timedelta | None = None,
) -> TaskSpec:
    return TaskSpec(
        name=TaskName(name),
        kind=TaskKind.PYTHON,
        script="x.py",
        needs=tuple(TaskName(need) for need in needs),
        requirements={} if asks is TriggerRule.SUCCEEDED else {TaskName(need): asks for need in needs},
        allow_failure=allow_failure,
        retries=Retries(limit=retries, delay=timedelta(seconds=2)),
        priority=priority,
        spark_place=place,
        pools=pools or {},
        start_after=start_after,
    )


def _reads(task: TaskSpec, *, args: tuple[str, ...] = (), when: str = "") -> TaskSpec:
    return replace(task, args=args, when=when, reads=task.needs)


def _every(minutes: int, catchup: CatchUp, window: timedelta | None = None) -> Schedule:
    return Schedule(cron=f"*/{minutes} * * * *", timezone="UTC", catchup=catchup, catchup_window=window)


TARGETS = ("oncall", "team")
NOTIFY = (
    NotifyRule(on=tuple(AlertEvent), to="oncall"),
    NotifyRule(on=(AlertEvent.FAILED, AlertEvent.TIMED_OUT, AlertEvent.RECOVERED), to="team"),
)
"""For all pipelines."""
_BIG = SparkPlace(target=TARGET)
_IN_CLUSTER = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
DIAMOND = PipelineSpec(
    name=PipelineName("diamond"),
    schedule=_every(5, CatchUp.NONE),
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=(
        _task("a"),
        _task("b", "a", place=_BIG),
        _task("c", "a", priority=Priority.HIGH, place=_IN_CLUSTER),
        replace(
            _task("d", "bc", retries=2),
            publishes=(Publication(dataset=DatasetName("checked"), of=TaskName("b")),),
        ),
        _task("e", "d", retries=0, asks=TriggerRule.NOT_FAILED, allow_failure=True),
    ),
)
CHAIN = PipelineSpec(
    name=PipelineName("chain"),
    tags=("nightly",),
    schedule=_every(3, CatchUp.ALL, timedelta(minutes=4)),
    failure_strategy=FailureStrategy.END,
    timeout=timedelta(minutes=15),
    tasks=(
        _task("a", retries=0),
        _task("b", "a", retries=2, place=_IN_CLUSTER),
        _task("c", "b", asks=TriggerRule.DONE),
        _task("d", "ab", asks=TriggerRule.ONE_FAILED),
        replace(_task("e", "c"), uses=("given", "checked")),
    ),
    reads=(
        Read(name="given", dataset=DatasetName("given")),
        Read(name="checked", dataset=DatasetName("checked"), optional=True),
    ),
)
LANDING = Accepted(dataset=DatasetName("landing"), partition=Partitioning.KEY)
SPARE = Accepted(dataset=DatasetName("spare"), partition=Partitioning.KEY)
"""Only one release takes it from outside, and nobody reads it: so it can be removed."""
KEYS = ("k1", "k1", "k1", "k1", "k2", "k3")
SINGLE = PipelineSpec(
    name=PipelineName("single"),
    schedule=_every(2, CatchUp.LATEST),
    priority=Priority.HIGH,
    concurrency=Concurrency(limit=1),
    tasks=(replace(_task("a", place=_IN_CLUSTER), uses=("given", "landing", "news")),),
    reads=(
        Read(name="given", dataset=DatasetName("given"), optional=True),
        Read(name="landing", dataset=LANDING.dataset, optional=True),
        Read(name="news", dataset=DatasetName("ticks"), new=True),
    ),
)
NARROW_LIMIT = 2
LEAF_LIMIT, MAX_CHILDREN = 3, 2
NARROW = PipelineSpec(
    name=PipelineName("narrow"),
    schedule=_every(2, CatchUp.ALL),
    timeout=timedelta(minutes=15),
    warn_after=timedelta(minutes=2),
    expect=timedelta(minutes=3),
    concurrency=Concurrency(limit=NARROW_LIMIT),
    max_parallel_tasks=2,
    tasks=(
        replace(_task("a", pools={"p": 1}), warn_after=timedelta(seconds=20)),
        _task("b", pools={"p": 2, "q": 1}),
        _task("c", pools={"q": 1}),
        replace(_task("d", "a", start_after=timedelta(seconds=5)), queue_timeout=timedelta(seconds=20)),
    ),
)
GIVING = PipelineSpec(
    name=PipelineName("giving"),
    schedule=_every(4, CatchUp.LATEST),
    failure_strategy=FailureStrategy.CONTINUE,
    accepts=(SPARE,),
    tasks=(
        replace(_task("a"), publishes=(Publication(dataset=DatasetName("given")),)),
        _reads(_task("b", "a", retries=2), args=("{{ tasks.a.result.given }}",)),
        _reads(_task("c", "a"), when="{{ tasks.a.result.given.endswith('.1') }}"),
        _reads(_task("d", "b", asks=TriggerRule.DONE, retries=0), args=("{{ tasks.b.result.given }}",)),
        _task("e", "bc", asks=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS, retries=0),
    ),
)


def _waits(name: str, wait: PipelineWait) -> TaskSpec:
    return TaskSpec(
        name=TaskName(name),
        kind=TaskKind.WAIT,
        script="",
        waits_for=(wait,),
        timeout=timedelta(minutes=6),
        allow_failure=True,
    )


ASKING = PipelineSpec(
    name=PipelineName("asking"),
    schedule=_every(4, CatchUp.LATEST),
    deadline=(START + timedelta(minutes=6)).time(),
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=(
        _task("a"),
        TaskSpec(
            name=TaskName("b"),
            kind=TaskKind.APPROVAL,
            script="",
            args=("go on?",),
            needs=(TaskName("a"),),
            timeout=timedelta(minutes=2),
            warn_after=timedelta(minutes=1),
        ),
        _task("c", "b"),
        TaskSpec(
            name=TaskName("d"),
            kind=TaskKind.WAIT,
            script="",
            args=("/d",),
            waits_for=(DataWait(source=DataSource.FILE),),
            timeout=timedelta(minutes=1),
        ),
    ),
)
AFTER = PipelineSpec(
    name=PipelineName("after"),
    concurrency=Concurrency(limit=1),
    schedule=_every(4, CatchUp.ALL, timedelta(minutes=8)),
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=(
        _waits("a", PipelineWait(pipeline=SINGLE.name)),
        _waits("b", PipelineWait(pipeline=SELF, on_failed=OnFailed.FAIL)),
        _waits("c", PipelineWait(pipeline=CHAIN.name, last=timedelta(minutes=3), on_failed=OnFailed.FAIL)),
        replace(
            _task("d", "a", retries=0),
            uses=("before", "leaves"),
            publishes=(Publication(dataset=DatasetName("hours"), partition=Partitioning.INTERVAL),),
        ),
    ),
    reads=(
        Read(name="before", dataset=DatasetName("hours"), last=timedelta(minutes=12), optional=True),
        Read(name="leaves", dataset=DatasetName("leaves"), optional=True),
    ),
)
FAILING_CHILD = "-1-2"
"""How the id of a child run ends that fails: the third item, in the first attempt."""
LEAF = PipelineSpec(
    name=PipelineName("leaf"),
    concurrency=Concurrency(limit=LEAF_LIMIT),
    tasks=(
        replace(
            _task("a", retries=0),
            publishes=(Publication(dataset=DatasetName("leaves"), partition=Partitioning.KEY, key="k"),),
        ),
    ),
)
PATIENT = PipelineSpec(
    name=PipelineName("patient"),
    tasks=(
        _waits("a", PipelineWait(pipeline=SINGLE.name)),
        _task("b", "a", retries=0, asks=TriggerRule.DONE),
    ),
)
FANNING = PipelineSpec(
    name=PipelineName("fanning"),
    parameters={"items": ParameterSpec(type="list", items="integer", default=[1, 2, 3, 4, 5])},
    schedule=_every(4, CatchUp.LATEST),
    tasks=(
        _task("a"),
        replace(
            _task("b", "a"),
            kind=TaskKind.PIPELINE,
            script="",
            children=ChildSpec(
                pipeline=LEAF.name, for_each={"n": "{{ params.items }}"}, max_parallel=MAX_CHILDREN
            ),
        ),
        replace(_task("c"), kind=TaskKind.PIPELINE, script="", children=ChildSpec(pipeline=PATIENT.name)),
        replace(_task("d", "bc", asks=TriggerRule.DONE), uses=("parts",)),
    ),
    reads=(Read(name="parts", dataset=DatasetName("leaves"), of=TaskName("b"), optional=True),),
)
STREAM = PipelineSpec(
    name=PipelineName("stream"),
    concurrency=Concurrency(limit=1),
    tasks=(
        replace(
            _task("a"),
            keeps_running=True,
            retries=Retries(delay=timedelta(seconds=2), max_delay=timedelta(seconds=20)),
        ),
    ),
)
TICKING = PipelineSpec(
    name=PipelineName("ticking"),
    tags=("nightly",),
    schedule=_every(2, CatchUp.ALL, timedelta(minutes=20)),
    accepts=(LANDING,),
    tasks=(
        replace(
            _task("a"),
            publishes=(Publication(dataset=DatasetName("ticks"), partition=Partitioning.INTERVAL),),
        ),
    ),
)
WINDOWED = PipelineSpec(
    name=PipelineName("windowed"),
    schedule=_every(4, CatchUp.LATEST),
    start=DataStart(),
    tasks=(replace(_task("a", retries=0), uses=("ticks",)),),
    reads=(Read(name="ticks", dataset=DatasetName("ticks"), starts=True),),
)
FOLLOWING = PipelineSpec(
    name=PipelineName("following"),
    tags=("nightly",),
    start=DataStart(settle=timedelta(seconds=20)),
    tasks=(replace(_task("a", retries=0), uses=("given", "ticks")),),
    reads=(
        Read(name="given", dataset=DatasetName("given"), starts=True),
        Read(name="ticks", dataset=DatasetName("ticks"), latest=True),
    ),
)
CALENDAR = "work"
CALENDARS = (
    Calendar(weekdays=tuple(range(7))),
    Calendar(),
    Calendar(weekdays=tuple(range(7)), exceptions=(START.date() - timedelta(days=1),)),
    Calendar(weekdays=tuple(range(7)), exceptions=(START.date(),)),
)
"""START is a Sunday, and a history is over on that day. The schedules below differ in what they do then."""
_HOURLY = Schedule(
    name="hourly",
    cron="*/4 * * * *",
    timezone="UTC",
    catchup=CatchUp.ALL,
    catchup_window=timedelta(minutes=9),
    calendar=CALENDAR,
)
_EARLY = Schedule(
    name="early",
    cron="0-56/4 0-3 * * *",
    timezone="UTC",
    parameters={"which": "early"},
    calendar=CALENDAR,
    on_holidays=OnHolidays.AFTER,
)
WORKING = PipelineSpec(
    name=PipelineName("working"),
    parameters={"which": ParameterSpec(type="string", default="hourly")},
    schedule=_HOURLY,
    more_schedules=(_EARLY,),
    tasks=(_task("a", retries=0),),
)
CONSUMERS = (WINDOWED, FOLLOWING)
SPECS = (
    STREAM,
    DIAMOND,
    CHAIN,
    SINGLE,
    NARROW,
    GIVING,
    ASKING,
    LEAF,
    PATIENT,
    FANNING,
    AFTER,
    TICKING,
    WORKING,
    *CONSUMERS,
)
NAMES = tuple(spec.name for spec in SPECS)
RELEASES = {ReleaseOf(spec.name, digest): spec for spec in SPECS for digest in (FIRST, SECOND)}
for _digest, _when_full in ((FIRST, WhenFull.REPLACE), (SECOND, WhenFull.SKIP)):
    _full = Concurrency(limit=NARROW_LIMIT, when_full=_when_full)
    RELEASES[ReleaseOf(NARROW.name, _digest)] = replace(NARROW, concurrency=_full)
RELEASES[ReleaseOf(WORKING.name, SECOND)] = replace(
    WORKING, schedule=_EARLY, more_schedules=(replace(_HOURLY, cron="1-57/4 * * * *"),)
)
RELEASES[ReleaseOf(GIVING.name, SECOND)] = replace(GIVING, accepts=())
MAX_RUNNING = 3
TEAMS = ("", "finance", "sales")
NEWEST_SCHEMA = NEWEST + 1
"""All processes know the schema after the newest one, to which some clusters are raised."""
POOLS = {"p": 2, "q": 1}


def first_records() -> dict[PipelineName, PipelineRecord]:
    """All pipelines, active."""
    return {
        spec.name: PipelineRecord(
            name=spec.name,
            state=PipelineState.ACTIVE,
            published=FIRST,
            release=FIRST,
            profile=profile_of(spec.with_days(lambda _: CALENDARS[0])),
            owner=TEAMS[at % 3] or None,
            schedule_position=START,
            updated_at=START,
        )
        for at, spec in enumerate(SPECS)
    }


def first_due() -> dict[PipelineName, Due]:
    """The consumers of these releases."""
    found = {spec.name: consumer_of(spec, None) for spec in CONSUMERS}
    return {name: due for name, due in found.items() if due is not None}
