"""Laws of traces and lineage: ids are derived from ours; messages do not depend on the time of sending."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.data.lineage import EventType, Family, LineageEvent, events, lineage_run
from nimbus.domain.ids import AttemptId, ClusterId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import PAGE, Tasks
from nimbus.domain.runs.traces import (
    attempt_span_id,
    attempt_uuid,
    dropped,
    from_slots,
    run_span_id,
    run_uuid,
    spans,
    trace_id,
    traceparent,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTER = ClusterId("1f-2a")
MANY = PAGE // 2 + 1
"""Number of tasks of a run whose record contains one attempt of each."""
BUSY = tuple(TaskName(f"t{number}") for number in range(3))

run_ids = st.from_regex(r"[a-z][a-z0-9_-]{0,30}", fullmatch=True).map(RunId)
attempt_ids = st.builds(
    AttemptId,
    run_ids,
    st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True).map(TaskName),
    st.integers(1, 999),
)
clusters = st.from_regex(r"[0-9a-f]{1,12}-[0-9a-f]{1,12}", fullmatch=True).map(ClusterId)


@given(clusters, attempt_ids)
def test_ids_have_the_forms_of_their_standards(cluster: ClusterId, attempt: AttemptId) -> None:
    parent = traceparent(cluster, attempt)

    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", parent)
    assert parent.split("-")[1:3] == [trace_id(cluster, attempt.run), attempt_span_id(cluster, attempt)]
    assert int(trace_id(cluster, attempt.run), 16)
    assert int(attempt_span_id(cluster, attempt), 16)
    assert UUID(attempt_uuid(cluster, attempt)).version == UUID(run_uuid(cluster, attempt.run)).version == 5


@given(st.lists(st.tuples(clusters, attempt_ids), min_size=2, max_size=20, unique=True))
def test_different_things_have_different_ids(found: list[tuple[ClusterId, AttemptId]]) -> None:
    of_runs = {(cluster, attempt.run) for cluster, attempt in found}

    assert (
        len({trace_id(*run) for run in of_runs}) == len({run_uuid(*run) for run in of_runs}) == len(of_runs)
    )
    spans_of = {attempt_span_id(*one) for one in found} | {run_span_id(*run) for run in of_runs}
    assert len(spans_of) == len(found) + len(of_runs)
    assert len({attempt_uuid(*one) for one in found}) == len(found)


def test_ids_are_what_they_were() -> None:
    """Collectors store them, so every release must give the same ids."""
    attempt = AttemptId(RunId("p-1"), TaskName("load"), 2)

    assert traceparent(CLUSTER, attempt) == "00-98f22ff9bba34415473d57afa8801276-dabdc93285fdcf6e-01"
    assert run_span_id(CLUSTER, attempt.run) == "dcb1acb0ab641f59"
    assert run_uuid(CLUSTER, attempt.run) == "1ac87539-5415-51f5-9c32-38a1fc72720a"
    assert attempt_uuid(CLUSTER, attempt) == "a4e60026-bde2-5009-9396-c980cbcefce4"


def new_run() -> Run:
    specs = (
        TaskSpec(
            name=TaskName(f"t{number}"),
            kind=TaskKind.PYTHON,
            script="x.py",
            retries=Retries(limit=3, delay=timedelta(0)),
        )
        for number in range(MANY)
    )
    return Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("a" * 64),
        parameters={},
        logical_date=START,
        created_at=START,
        cause=RunCause.MANUAL,
        priority=Priority.LOW,
        failure_strategy=FailureStrategy.CONTINUE,
        state=RunState.QUEUED,
        tasks=Tasks(TaskRun(spec=spec) for spec in specs),
    )


Steps = list[tuple[TaskName, Outcome]]
ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST, Outcome.FENCED)
histories = st.lists(st.tuples(st.sampled_from(BUSY), st.sampled_from(ENDS)), max_size=25)


def lived(steps: Steps, *, starts: bool) -> tuple[list[Run], dict[AttemptId, Slots]]:
    """Every version of a run with these steps, which is then stopped, and its remaining slots."""
    now = START
    versions = [run := new_run()]
    slots: dict[AttemptId, Slots] = {}
    if starts:
        versions.append(run := lifecycle.started(run, now))
    for name, outcome in steps if starts else ():
        now += timedelta(seconds=1)
        task = run.tasks[name]
        if task.state is TaskState.WAITING and run.opens_tasks:
            run = lifecycle.open_attempt(run, name, worker=WorkerId("w"), epoch=1, now=now)
        elif task.open_attempt is not None:
            attempt = AttemptId(run.id, name, task.open_attempt.number)
            end = End(
                attempt=str(attempt),
                outcome=outcome,
                written_by="test",
                ended_at=now,
                reason="" if outcome is Outcome.SUCCEEDED else "no more memory; " * 200,
                failure=FailureClass.ERROR if outcome is Outcome.FAILED else None,
            )
            claim = Claim(attempt=str(attempt), worker=WorkerId("w"), claimed_at=task.open_attempt.opened_at)
            slots[attempt] = Slots(claim=claim, end=end)
            run = lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=30, now=now)
        versions.append(run)
    run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="enough", now=now)
    versions.append(run)
    for attempt in run.open_attempts():
        end = End(attempt=str(attempt), outcome=Outcome.STOPPED, written_by="test", ended_at=now)
        slots[attempt] = Slots(end=end)
        versions.append(
            run := lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=30, now=now)
        )
    assert run.state.is_final
    return versions, slots


def told(versions: Iterable[Run], slots: Mapping[AttemptId, Slots]) -> list[LineageEvent]:
    """The messages of a leader that sees these versions."""
    before, found = None, list[LineageEvent]()
    for run in versions:
        gone = from_slots({attempt: slots[attempt] for attempt in dropped(before, run)})
        found += events(CLUSTER, before, run, Family(None, lineage_run(CLUSTER, run)), gone)
        before = run
    return found


@given(histories, st.booleans(), st.data())
def test_lineage_is_the_same_however_often_it_is_looked_at(
    steps: Steps, starts: bool, data: st.DataObject
) -> None:
    versions, slots = lived(steps, starts=starts)
    seen = [run for run in versions[:-1] if data.draw(st.booleans())] + [versions[-1]]

    found, everything = told(seen, slots), told(versions, slots)

    each = Counter((event.of.run_id, event.type is EventType.START) for event in found)
    assert each == Counter((event.of.run_id, event.type is EventType.START) for event in everything)
    assert set(each.values()) == {1}
    assert all(event in everything for event in found)
    assert each.keys() == {(one, is_start) for one, _ in each for is_start in (True, False)}
    order = [event.of.run_id for event in found if event.type is EventType.START]
    assert order.index(run_uuid(CLUSTER, RunId("r"))) == 0
    assert all(event.parent is not None for event in found if event.task is not None)
    assert all(event.error for event in found if event.type in (EventType.FAIL, EventType.ABORT))


@given(histories)
def test_trace_has_a_span_for_each_attempt_below_one_root(steps: Steps) -> None:
    versions, slots = lived(steps, starts=True)
    run = versions[-1]

    root, *attempts = spans(CLUSTER, run, from_slots({one: slots[one] for one in dropped(None, run)}))

    assert (root.trace_id, root.span_id) == (trace_id(CLUSTER, run.id), run_span_id(CLUSTER, run.id))
    assert root.parent_id is None
    assert sorted(one.span_id for one in attempts) == sorted(attempt_span_id(CLUSTER, one) for one in slots)
    assert {(one.trace_id, one.parent_id) for one in attempts} <= {(root.trace_id, root.span_id)}
    assert all(one.started_at <= one.ended_at for one in (root, *attempts))
    failed = {one.span_id for one in attempts if one.error is not None}
    ends = {attempt: found.end for attempt, found in slots.items() if found.end is not None}
    bad = [attempt for attempt, end in ends.items() if end.outcome is not Outcome.SUCCEEDED]
    assert failed == {attempt_span_id(CLUSTER, attempt) for attempt in bad}


def test_clocks_of_two_hosts_make_no_span_that_ends_before_it_starts() -> None:
    versions, _ = lived([(BUSY[0], Outcome.SUCCEEDED)] * 2, starts=True)
    run, name = versions[-1], BUSY[0]
    (attempt,) = run.tasks[name].attempts
    early = replace(attempt, ended_at=attempt.opened_at - timedelta(seconds=5), started_at=None)
    run = replace(run, tasks=run.tasks.replaced([replace(run.tasks[name], attempts=(early,))]))

    (_, span) = spans(CLUSTER, run, {})

    assert span.ended_at == span.started_at
