"""Tasks that no worker runs: their end, once, and refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain import writes as w
from nimbus.domain.commands import (
    Command,
    DecideApproval,
    MarkTask,
    PauseRun,
    QueuedCommand,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Settlement, TaskState
from nimbus.domain.starts.upstream import Upstream, WaitState, judge
from nimbus.domain.starts.waits import DataProbe, DataSource, DataWait, OnFailed, PipelineWait, ProbeResult
from nimbus.engine.decision import BuildRun, Decision
from nimbus.engine.probes import LAST_PROBE_S, LONGEST_PAUSE_S, MAX_REPORTED, Probes
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key
from tests.nimbus.definitions import active, built

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN, ASKED, AFTER = RunId("p-1"), TaskName("asked"), TaskName("after")
HOUR = timedelta(hours=1)
APPROVAL = TaskSpec(name=ASKED, kind=TaskKind.APPROVAL, script="", args=("Release {{ ds }}?",), timeout=HOUR)
SPEC = PipelineSpec(
    name=PipelineName("p"),
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=(APPROVAL, TaskSpec(name=AFTER, kind=TaskKind.PYTHON, script="a.py", needs=(ASKED,))),
)
APPROVE = DecideApproval(run_id=RUN, task=ASKED, approved=True, reason="figures checked")


def at(now: datetime) -> Instant:
    return Instant(now, (now - NOW).total_seconds())


def started(spec: PipelineSpec = SPEC) -> State:
    state = State(epoch=3, schema=1)
    state.put_pipeline(active(spec))
    state.finish_loading()
    submit(state, StartRun(pipeline=spec.name, run_id=RUN))
    decide_all(state)
    return state


def submit(state: State, command: Command, by: str = "ada") -> None:
    key = CommandId(f"cmd-{len(state.commands.waiting)}")
    state.commands.put(QueuedCommand(id=key, command=command, submitted_at=NOW, submitted_by=by))


def decide_all(state: State, now: datetime = NOW) -> list[Decision]:
    """Every decision until nothing is left, each applied as if it were written."""
    made = []
    state.wake(at(now))
    while (key := next_key(state)) is not None:
        answer = ask(state, key, at(now))
        if not isinstance(answer, Decision):
            state.postpone(key, answer)
            continue
        state.apply(answer, at(now))
        made.append(answer)
        for effect in answer.effects:
            if isinstance(effect, BuildRun):
                state.run_built(effect.key, built(effect).built)
    return [decision for decision in made if decision.writes]


def outcome(decisions: list[Decision]) -> tuple[bool, str]:
    (said,) = [x.outcome for one in decisions for x in one.writes if isinstance(x, w.ConsumeCommand)]
    return said.accepted, said.code


def last_run(decisions: list[Decision]) -> Run:
    return [x.run for one in decisions for x in one.writes if isinstance(x, w.PutRun)][-1]


def test_approval_waits_without_a_worker_and_its_prompt_is_rendered() -> None:
    state = started()
    task = state.runs.live[RUN].tasks[ASKED]

    assert (task.state, task.attempts, task.spec.args) == (TaskState.WAITING, (), ("Release 2026-03-01?",))
    assert decide_all(state) == []
    assert len(state.ready) == 0


def test_approval_ends_its_task_with_who_and_why_in_the_transaction_that_consumes_the_command() -> None:
    state = started()
    submit(state, APPROVE)

    (decision,) = decide_all(state)

    assert [type(write) for write in decision.writes] == [w.PutRun, w.ConsumeCommand]
    task = last_run([decision]).tasks[ASKED]
    assert task.state is TaskState.SUCCEEDED
    assert task.settled == Settlement(at=NOW, by="ada", reason="figures checked")
    assert (RUN, AFTER) in state.ready


def test_rejected_approval_fails_its_task_and_run() -> None:
    state = started()
    submit(state, replace(APPROVE, approved=False))

    run = last_run(decide_all(state))

    assert (run.tasks[ASKED].state, run.tasks[AFTER].state) == (TaskState.FAILED, TaskState.NOT_RUN)
    assert run.state is RunState.FAILED


def test_same_decision_again_is_accepted_and_writes_nothing_more() -> None:
    state = started()
    for _ in range(2):
        submit(state, APPROVE)
        decisions = decide_all(state)

    assert outcome(decisions) == (True, "ok")
    assert [type(x) for one in decisions for x in one.writes] == [w.ConsumeCommand]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (replace(APPROVE, run_id=RunId("p-2")), "unknown_run"),
        (replace(APPROVE, task=TaskName("none")), "unknown_task"),
        (replace(APPROVE, task=AFTER), "unknown_task"),
    ],
)
def test_decision_about_what_is_no_approval_is_refused(command: DecideApproval, code: str) -> None:
    state = started()
    submit(state, command)

    assert outcome(decide_all(state)) == (False, code)


@pytest.mark.parametrize(("approved", "by"), [(False, "ada"), (True, "eve")])
def test_other_decision_about_a_decided_approval_is_refused(approved: bool, by: str) -> None:
    state = started()
    submit(state, APPROVE)
    decide_all(state)
    submit(state, replace(APPROVE, approved=approved), by)

    assert outcome(decide_all(state)) == (False, "no_approval")
    assert state.runs.live[RUN].tasks[ASKED].state is TaskState.SUCCEEDED


def test_rejection_of_a_task_that_was_marked_skipped_for_the_same_reason_is_refused() -> None:
    other = TaskSpec(name=TaskName("other"), kind=TaskKind.PYTHON, script="a.py")
    state = started(replace(SPEC, tasks=(*SPEC.tasks, other)))
    submit(state, MarkTask(run_id=RUN, task=ASKED, state="skipped", reason=APPROVE.reason))
    decide_all(state)
    submit(state, replace(APPROVE, approved=False))

    assert outcome(decide_all(state)) == (False, "no_approval")
    assert state.runs.live[RUN].tasks[ASKED].state is TaskState.SKIPPED


def test_approval_is_refused_before_its_needs_have_ended() -> None:
    first = TaskSpec(name=TaskName("first"), kind=TaskKind.PYTHON, script="a.py")
    state = started(replace(SPEC, tasks=(first, replace(APPROVAL, needs=(first.name,)))))
    submit(state, APPROVE)

    assert outcome(decide_all(state)) == (False, "no_approval")


def test_approval_in_a_paused_run_is_refused_with_how_to_resume_it() -> None:
    state = started()
    submit(state, PauseRun(run_id=RUN))
    decide_all(state)
    submit(state, APPROVE)

    (decision,) = decide_all(state)

    (said,) = [one.outcome for one in decision.writes if isinstance(one, w.ConsumeCommand)]
    assert said.code == "no_approval"
    assert f"`nimbus run resume {RUN}`" in said.message


def test_approval_fails_when_its_timeout_has_passed_and_not_before() -> None:
    state = started()

    assert decide_all(state, NOW + HOUR - timedelta(seconds=1)) == []
    task = last_run(decide_all(state, NOW + HOUR)).tasks[ASKED]

    assert task.state is TaskState.FAILED
    assert task.settled == Settlement(at=NOW + HOUR, reason="nobody approved it within 1h", timed_out=True)


def test_next_leader_keeps_the_time_of_an_approval() -> None:
    before = started()
    state = State(epoch=4, schema=1)
    state.runs.put(before.runs.live[RUN], at(NOW + HOUR / 2))
    state.put_pipeline(active(SPEC))
    state.finish_loading()

    assert decide_all(state, NOW + HOUR / 2) == []
    assert [one.name for one in decide_all(state, NOW + HOUR)] == ["wait_timed_out"]


def test_approval_of_a_stopped_run_does_not_run() -> None:
    state = started()
    submit(state, StopRun(run_id=RUN, reason="test"))

    assert last_run(decide_all(state)).tasks[ASKED].state is TaskState.NOT_RUN
    assert decide_all(state, NOW + HOUR) == []


# -- data

WAITING = TaskSpec(
    name=ASKED,
    kind=TaskKind.WAIT,
    script="",
    args=("s3://bucket/{{ ds }}/_SUCCESS", "http://host/ready"),
    waits_for=(DataWait(source=DataSource.S3), DataWait(source=DataSource.HTTP, status=204)),
    timeout=HOUR,
)
OBJECT = DataProbe(DataSource.S3, "s3://bucket/2026-03-01/_SUCCESS")
PAGE = DataProbe(DataSource.HTTP, "http://host/ready", 204)
DATA = replace(SPEC, tasks=(WAITING, SPEC.tasks[1]))
THERE, MISSING = ProbeResult(True, ""), ProbeResult(False, "404")


def test_data_is_looked_for_at_once_and_the_task_succeeds_when_all_is_there() -> None:
    state = started(DATA)
    assert sorted(state.tasks.probes.take_due(0.0)) == sorted((OBJECT, PAGE))
    assert state.tasks.probes.take_due(1e9) == [], "nothing is due again before it was seen"

    state.tasks.data_seen(OBJECT, THERE, at(NOW))
    assert decide_all(state) == []
    state.tasks.data_seen(PAGE, THERE, at(NOW))
    (decision,) = decide_all(state)

    task = last_run([decision]).tasks[ASKED]
    assert (decision.name, task.state, task.attempts) == ("wait_met", TaskState.SUCCEEDED, ())
    assert task.settled == Settlement(at=NOW, reason="all is there")


def test_data_that_is_not_there_within_the_timeout_fails_the_task_with_its_address() -> None:
    state = started(DATA)
    probe(state, NOW, {OBJECT: THERE, PAGE: MISSING})
    probe(state, NOW + HOUR, {PAGE: MISSING})

    task = last_run(decide_all(state, NOW + HOUR)).tasks[ASKED]

    assert task.state is TaskState.FAILED
    assert task.settled == Settlement(
        at=NOW + HOUR, reason="http://host/ready (204) was not there within 1h", timed_out=True
    )
    assert state.tasks.probes.take_due(1e9) == []


def probe(state: State, now: datetime, answers: dict[DataProbe, ProbeResult]) -> None:
    """Probe what is due, and answer at once."""
    due = state.tasks.probes.take_due(at(now).elapsed_s)
    assert set(due) == set(answers)
    for one in due:
        state.tasks.data_seen(one, answers[one], at(now))


def test_no_probe_is_announced_for_later_than_the_timeout() -> None:
    state = started(DATA)
    now = NOW
    while (due_s := max(state.tasks.probes.next_due_s() or 0.0, 0.0)) < HOUR.total_seconds():
        now = NOW + timedelta(seconds=due_s)
        for one in state.tasks.probes.take_due(at(now).elapsed_s):
            state.tasks.data_seen(one, MISSING, at(now))

    assert due_s == HOUR.total_seconds()
    assert {one.next_at for one in state.tasks.probes.report().values()} == {NOW + HOUR}


@pytest.mark.parametrize(("seen", "ending"), [(THERE, "wait_met"), (MISSING, "wait_timed_out")])
@pytest.mark.parametrize("takes_over", [False, True])
def test_data_are_looked_up_a_last_time_when_the_timeout_has_passed(
    takes_over: bool, seen: ProbeResult, ending: str
) -> None:
    state, late = started(DATA), NOW + (3 * HOUR if takes_over else HOUR)
    if takes_over:
        before, state = state, State(epoch=4, schema=1)
        state.runs.put(before.runs.live[RUN], at(late))
        state.put_pipeline(active(DATA))
        state.finish_loading()
    else:
        probe(state, NOW, {OBJECT: MISSING, PAGE: MISSING})
    assert decide_all(state, late) == [], "the last probe has no answer yet"

    probe(state, late, {OBJECT: seen, PAGE: seen})

    assert [one.name for one in decide_all(state, late)] == [ending]


def test_answer_of_a_probe_of_an_earlier_term_is_not_the_last_one() -> None:
    state = started(DATA)
    state.tasks.data_seen(OBJECT, MISSING, at(NOW + HOUR))
    state.tasks.data_seen(PAGE, MISSING, at(NOW + HOUR))

    assert decide_all(state, NOW + HOUR) == []
    assert sorted(state.tasks.probes.take_due(HOUR.total_seconds())) == sorted((OBJECT, PAGE))


def test_wait_fails_though_the_last_probe_never_ends() -> None:
    state = started(DATA)
    probe(state, NOW, {OBJECT: MISSING, PAGE: MISSING})
    state.tasks.probes.take_due(HOUR.total_seconds())

    assert decide_all(state, NOW + HOUR) == []
    assert [one.name for one in decide_all(state, NOW + HOUR + timedelta(seconds=LAST_PROBE_S))] == [
        "wait_timed_out"
    ]


def test_rendered_address_that_is_none_fails_the_task_and_is_never_probed() -> None:
    state = State(epoch=3, schema=1)
    state.put_pipeline(active(replace(DATA, tasks=(replace(WAITING, args=("file:///etc", "gopher://x")),))))
    state.finish_loading()
    submit(state, StartRun(pipeline=SPEC.name, run_id=RUN))

    decisions = decide_all(state)

    assert decisions[-1].name == "wait_failed"
    assert state.tasks.probes.take_due(1e9) == []


def test_next_leader_probes_anew() -> None:
    before = started(DATA)
    before.tasks.data_seen(OBJECT, THERE, at(NOW))
    state = State(epoch=4, schema=1)
    state.runs.put(before.runs.live[RUN], at(NOW))

    assert sorted(state.tasks.probes.take_due(0.0)) == sorted((OBJECT, PAGE))


def test_stopped_run_is_waited_for_no_more() -> None:
    state = started(DATA)
    submit(state, StopRun(run_id=RUN, reason="test"))
    decide_all(state)

    state.tasks.data_seen(OBJECT, MISSING, at(NOW))

    assert state.tasks.probes.take_due(1e9) == []
    assert state.tasks.probes.report() == {}


def test_pauses_between_probes_grow_up_to_a_bound_and_the_last_probe_is_reported() -> None:
    probes, now_s, pauses = Probes(), 0.0, []
    probes.want(Key("wait", RUN, ASKED), [OBJECT])
    for _ in range(8):
        assert probes.take_due(now_s) == [OBJECT]
        probes.seen(OBJECT, MISSING, at(NOW + timedelta(seconds=now_s)))
        due_s = probes.next_due_s()
        assert due_s is not None
        pauses.append(due_s - now_s)
        now_s = due_s

    assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    report = probes.report()[OBJECT.name]
    assert (report.said, report.next_at - report.at) == ("404", timedelta(seconds=LONGEST_PAUSE_S))


def test_equal_probes_of_many_tasks_are_one() -> None:
    probes = Probes()
    tasks = [Key("wait", RunId(f"p-{number}"), ASKED) for number in range(1000)]
    for task in tasks:
        probes.want(task, [OBJECT])

    assert probes.take_due(0.0) == [OBJECT]
    assert probes.seen(OBJECT, THERE, at(NOW)) == sorted(tasks)


def test_report_has_the_latest_probes_and_a_bound() -> None:
    probes = Probes()
    many = [DataProbe(DataSource.FILE, f"/{number}") for number in range(MAX_REPORTED + 10)]
    probes.want(Key("wait", RUN, ASKED), [*many, DataProbe(DataSource.FILE, "/" + "x" * 1000)])
    for probe in probes.take_due(0.0):
        probes.seen(probe, ProbeResult(False, "x" * 10_000), at(NOW))

    report = probes.report()

    assert len(report) == MAX_REPORTED
    assert max(len(name) + len(found.said) for name, found in report.items()) < 1000


# -- runs of other pipelines

DAY = DataInterval(start=NOW - timedelta(days=1), end=NOW)
UPSTREAM = PipelineSpec(
    name=PipelineName("ods"), tasks=(TaskSpec(name=AFTER, kind=TaskKind.APPROVAL, script="", args=("?",)),)
)
FOR_RUNS = replace(WAITING, args=(), waits_for=(PipelineWait(pipeline=UPSTREAM.name),))
DOWNSTREAM = replace(SPEC, tasks=(FOR_RUNS, SPEC.tasks[1]))


def with_both() -> State:
    """A waiting run, and the run that it waits for, whose only task is an approval."""
    state = State(epoch=3, schema=1)
    for spec in (UPSTREAM, DOWNSTREAM):
        state.put_pipeline(active(spec))
    state.finish_loading()
    submit(state, StartRun(pipeline=DOWNSTREAM.name, run_id=RUN, data_interval=DAY))
    decide_all(state)
    submit(state, StartRun(pipeline=UPSTREAM.name, run_id=RunId("ods-1"), data_interval=DAY))
    decide_all(state)
    return state


def end_upstream(state: State, *, approved: bool) -> list[Decision]:
    submit(state, replace(APPROVE, run_id=RunId("ods-1"), task=AFTER, approved=approved))
    return decide_all(state)


def test_end_of_another_pipelines_run_ends_a_wait_for_it_without_any_timer() -> None:
    state = with_both()
    assert decide_all(state) == []

    decisions = end_upstream(state, approved=True)

    assert [one.name for one in decisions] == ["command_accepted", "wait_met"]
    assert state.runs.live[RUN].tasks[ASKED].state is TaskState.SUCCEEDED


def test_failed_run_is_waited_out_and_its_interval_is_named_when_time_is_up() -> None:
    state = with_both()
    assert [one.name for one in end_upstream(state, approved=False)] == ["command_accepted"]

    settled = last_run(decide_all(state, NOW + HOUR)).tasks[ASKED].settled

    assert settled is not None
    assert settled.reason.startswith(
        "pipeline ods: 2026-02-28T12:00+0000 to 2026-03-01T12:00+0000 (run ods-1 failed)"
    )


def test_run_that_waits_for_a_pipeline_is_refused_without_a_data_interval() -> None:
    state = with_both()
    submit(state, StartRun(pipeline=DOWNSTREAM.name, run_id=RunId("p-2")))

    assert outcome(decide_all(state)) == (False, "invalid_parameters")


def test_next_leader_sees_what_ended_before_it() -> None:
    before = with_both()
    end_upstream(before, approved=True)
    waiting = with_both().runs.live[RUN]
    state = State(epoch=4, schema=1)
    state.runs.put(waiting, at(NOW))
    state.put_intervals(UPSTREAM.name, before.catalog.intervals[UPSTREAM.name])
    state.finish_loading()

    assert [one.name for one in decide_all(state)] == ["wait_met"]


def test_end_of_a_pipeline_that_nobody_waits_for_costs_nothing() -> None:
    state = with_both()
    submit(state, StopRun(run_id=RUN, reason="test"))
    decide_all(state)

    assert [one.name for one in end_upstream(state, approved=True)] == ["command_accepted"]
    assert state.work.first("wait") is None


def test_wait_is_not_met_by_child_runs_of_the_pipeline() -> None:
    state = with_both()
    own = state.runs.live[RunId("ods-1")]
    state.runs.put(
        replace(own, parent=Parent(run=RUN, top=RUN, task=AFTER, attempt=1, index=0, depth=1)), at(NOW)
    )

    decisions = end_upstream(state, approved=True)

    assert [one.name for one in decisions] == ["command_accepted"]
    assert state.runs.live[RUN].tasks[ASKED].state is TaskState.WAITING


def test_wait_that_gives_up_on_a_failure_does_not_wait_for_child_runs() -> None:
    state = with_both()
    own = state.runs.live[RunId("ods-1")]
    child = replace(own, parent=Parent(run=RUN, top=RUN, task=AFTER, attempt=1, index=0, depth=1))
    wait = PipelineWait(pipeline=UPSTREAM.name, on_failed=OnFailed.FAIL)
    failed = replace(own, state=RunState.FAILED, finished_at=NOW)
    index = IntervalIndex(begins=NOW).with_run(failed)

    found = judge(wait, state.runs.live[RUN], Upstream(index, (child,)))

    assert found.standing is WaitState.FAILED
