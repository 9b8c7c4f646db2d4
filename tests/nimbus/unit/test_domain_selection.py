"""The tasks of a new run that are run, and the results that replace the others."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nimbus import records, run_record
from nimbus.domain.attempts.slots import End
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureStrategy,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
    TriggerRule,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.selection import Scope, Selection, entered
from nimbus.domain.runs.task_run import Outcome, Reused, Settlement, TaskRun
from nimbus.domain.runs.task_run import TaskState as S
from nimbus.domain.runs.tasks import Tasks

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
A, B, C, D = (TaskName(name) for name in "abcd")
OLD, NEW = RunId("old"), RunId("new")


def a_run(name: RunId = NEW, **changes: object) -> Run:
    """A run of `a`, then `b`, then `c`; `d` is independent."""
    specs = (
        TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"),
        TaskSpec(name=B, kind=TaskKind.PYTHON, script="b.py", needs=(A,)),
        TaskSpec(name=C, kind=TaskKind.PYTHON, script="c.py", needs=(B,)),
        TaskSpec(name=D, kind=TaskKind.PYTHON, script="d.py"),
    )
    run = Run(
        id=name,
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        tasks=Tasks(TaskRun(spec=spec) for spec in specs),
    )
    return replace(run, **changes)  # type: ignore[arg-type]  # keys of a run


def with_spec(run: Run, name: TaskName, **changes: object) -> Run:
    specs = {task.spec.name: task.spec for task in run.tasks.in_order()}
    specs[name] = replace(specs[name], **changes)  # type: ignore[arg-type]  # keys of a spec
    return replace(run, tasks=Tasks(TaskRun(spec=spec) for spec in specs.values()))


def tried(run: Run, name: TaskName, outcome: Outcome = Outcome.SUCCEEDED) -> Run:
    run = lifecycle.open_attempt(run, name, worker=WorkerId("w"), epoch=1, now=NOW)
    attempt = AttemptId(run.id, name, run.tasks[name].tried)
    output = f"p/{run.id}/{name}/1"
    end = End(attempt=str(attempt), outcome=outcome, written_by="runner", ended_at=NOW, output=output)
    return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=10, now=NOW)


def earlier() -> Run:
    """`a` and `d` have succeeded, `b` has failed, `c` was not run."""
    return tried(tried(tried(a_run(OLD), A), D), B, Outcome.FAILED)


def chosen(
    scope: Scope, *tasks: TaskName, of: Run | None = None, run: Run | None = None, **more: object
) -> Run:
    selection = Selection(
        scope=scope,
        tasks=tasks,
        reuse=None if of is None else of.id,
        is_rerun=of is not None,
        **more,  # type: ignore[arg-type]  # fields of a selection
    )
    return lifecycle.begin(entered(run or a_run(), selection, of, {}, by="ann", now=NOW), NOW)


def states(run: Run) -> str:
    """One letter for each task: waiting, succeeded, skipped (k), left out (-), not run."""
    letters = {S.WAITING: "w", S.SUCCEEDED: "s", S.SKIPPED: "k", S.NOT_RUN: "n"}
    return "".join("-" if task.left_out else letters[task.state] for task in run.tasks.in_order())


@pytest.mark.parametrize(
    ("scope", "tasks", "expected"),
    [
        (Scope.ALL, (), "wwww"),
        (Scope.ONLY, (B,), "-w--"),
        (Scope.FROM, (B,), "-ww-"),
        (Scope.UPTO, (B,), "ww--"),
        (Scope.ONLY, (A, D), "w--w"),
    ],
)
def test_tasks_that_are_not_selected_are_left_out(
    scope: Scope, tasks: tuple[TaskName, ...], expected: str
) -> None:
    assert states(chosen(scope, *tasks)) == expected


@pytest.mark.parametrize(
    ("scope", "tasks", "expected"),
    [
        (Scope.ALL, (), "wwww"),
        (Scope.FAILED, (), "swws"),
        (Scope.FROM, (B,), "swws"),
        (Scope.FROM, (A,), "wwws"),
        (Scope.ONLY, (B,), "sw-s"),
        (Scope.UPTO, (B,), "ww-s"),
        (Scope.ONLY, (C,), "s-ws"),
    ],
)
def test_rerun_repeats_what_is_asked_for_and_reuses_what_succeeded(
    scope: Scope, tasks: tuple[TaskName, ...], expected: str
) -> None:
    run = chosen(scope, *tasks, of=earlier())

    assert states(run) == expected
    assert run.rerun_of == OLD


def test_task_is_ready_when_what_it_needs_was_left_out() -> None:
    run = chosen(Scope.ONLY, C)

    assert lifecycle.is_ready(run, run.tasks[C])
    assert tried(run, C).state is RunState.SUCCEEDED


def test_task_that_asks_for_a_failure_is_ready_when_what_it_needs_was_left_out() -> None:
    run = with_spec(a_run(), B, requirements={A: TriggerRule.FAILED})
    run = chosen(Scope.ONLY, B, run=run)

    assert lifecycle.is_ready(run, run.tasks[B])


def test_reused_success_gives_its_output_and_says_where_it_comes_from() -> None:
    old = earlier()
    run = chosen(Scope.FAILED, of=old)

    assert run.tasks[A].reused == Reused(run=OLD, attempt=old.tasks[A].attempts[-1])
    assert lifecycle.committed_outputs(run, (A,)) == {"a": "p/old/a/1"}
    assert run.tasks[A].tried == 0


def test_rerun_of_a_rerun_names_the_run_that_did_the_work() -> None:
    second = tried(chosen(Scope.FAILED, of=earlier(), run=a_run(RunId("second"))), B, Outcome.FAILED)
    third = chosen(Scope.FAILED, of=second)

    assert third.rerun_of == "second"
    assert third.tasks[A].reused == second.tasks[A].reused


def test_marked_task_counts_as_it_is_marked_and_what_follows_runs() -> None:
    run = chosen(Scope.FAILED, of=earlier(), marks={B: S.SUCCEEDED}, reason="by hand")

    assert states(run) == "ssws"
    assert run.tasks[B].settled == Settlement(at=NOW, by="ann", reason="by hand")
    assert tried(run, C).state is RunState.SUCCEEDED
    assert states(chosen(Scope.FAILED, of=earlier(), marks={B: S.SKIPPED}, reason="x")) == "skks"


def test_reused_task_that_was_marked_after_a_failed_attempt_gives_no_output_of_that() -> None:
    old = tried(with_spec(a_run(OLD), A, retries=Retries(limit=1)), A, Outcome.TIMED_OUT)
    said = Settlement(at=NOW, by="ann", reason="by hand")
    old = lifecycle.mark_task(old, A, state=S.SUCCEEDED, settlement=said, now=NOW)
    old = tried(tried(old, D), B, Outcome.FAILED)

    run = chosen(Scope.FAILED, of=old)

    assert run.tasks[A].reused == Reused(run=OLD, attempt=None)
    assert lifecycle.committed_outputs(run, (A,)) == lifecycle.committed_outputs(old, (A,))


def test_task_that_the_release_has_since_then_is_run_with_what_failed() -> None:
    more = TaskRun(spec=TaskSpec(name=TaskName("z"), kind=TaskKind.PYTHON, script="z.py"))
    run = replace(a_run(), tasks=Tasks([*a_run().tasks.in_order(), more]))

    assert states(chosen(Scope.FAILED, of=earlier(), run=run)) == "swwsw"


def test_skipped_and_left_out_tasks_stay_so_in_a_rerun() -> None:
    old = tried(chosen(Scope.FROM, B, run=a_run(OLD)), B, Outcome.FAILED)
    assert states(chosen(Scope.FAILED, of=old)) == "-ww-"

    skipped = tried(lifecycle.begin(with_spec(a_run(OLD), D, when="false"), NOW), A, Outcome.FAILED)
    assert states(chosen(Scope.FAILED, of=skipped)) == "wwwk"


def test_selection_is_refused_when_it_names_an_unknown_task() -> None:
    with pytest.raises(RefusedError, match="has no task z") as refused:
        chosen(Scope.FROM, TaskName("z"))

    assert refused.value.code == "unknown_task"


def test_rerun_is_refused_when_nothing_failed() -> None:
    old = tried(tried(tried(tried(a_run(OLD), A), B), C), D)

    with pytest.raises(RefusedError, match="no task of run old failed") as refused:
        chosen(Scope.FAILED, of=old)

    assert refused.value.code == "nothing_selected"


def test_selected_task_that_reads_a_result_of_one_left_out_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="task b reads the result of a, which is not selected") as refused:
        chosen(Scope.ONLY, B, run=with_spec(a_run(), B, reads=(A,)))

    assert refused.value.code == "needs_reuse"


def test_result_that_a_selected_task_reads_comes_along() -> None:
    old = earlier()
    attempt = replace(old.tasks[A].attempts[-1], has_result=True)
    old = replace(old, tasks=old.tasks.replaced([replace(old.tasks[A], attempts=(attempt,))]))
    run = with_spec(a_run(), B, reads=(A,))
    selection = Selection(scope=Scope.FAILED, reuse=OLD, is_rerun=True)

    found = entered(run, selection, old, {A: {"rows": 3}, D: {"rows": 4}}, by="ann", now=NOW)
    assert (found.tasks[A].reused, found.tasks[D].reused) == (
        Reused(run=OLD, attempt=attempt, result={"rows": 3}),
        Reused(run=OLD, attempt=old.tasks[D].attempts[-1]),
    )
    with pytest.raises(RefusedError, match="no longer has"):
        entered(run, selection, old, {}, by="ann", now=NOW)


@pytest.mark.parametrize(("results", "fits"), [(16, True), (17, False)])
def test_rerun_is_refused_when_the_results_that_it_takes_over_are_too_large_for_a_page(
    results: int, fits: bool
) -> None:
    givers = [TaskSpec(name=TaskName(f"g{n}"), kind=TaskKind.PYTHON, script="g.py") for n in range(results)]
    names = tuple(spec.name for spec in givers)
    reader = TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py", needs=names, reads=names)
    new = a_run(tasks=Tasks(TaskRun(spec=spec) for spec in (*givers, reader)))
    done = replace(new, id=OLD)
    for name in names:
        done = tried(done, name)
    done = tried(done, A, Outcome.FAILED)
    given = {name: {"x": "x" * (4096 - len('{"x": ""}'))} for name in names}
    selection = Selection(scope=Scope.FAILED, reuse=OLD, is_rerun=True)

    with (
        nullcontext() if fits else pytest.raises(RefusedError, match="65536 is the most: select some of them")
    ):
        entered(new, selection, done, given, by="ann", now=NOW)


def test_selection_is_in_the_record_of_a_run() -> None:
    run = chosen(Scope.FAILED, of=earlier(), marks={B: S.SUCCEEDED}, reason="by hand")

    assert run_record.decode(run_record.encode_new(run), "new") == run
    assert records.RUN.decode(records.RUN.encode(run), "new") == run
