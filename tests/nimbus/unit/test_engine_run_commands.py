"""Commands about runs: pause, resume, rerun, mark, with one leader and with a successor."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest

from nimbus import run_record
from nimbus.domain.commands import (
    ActOnSelection,
    Command,
    MarkTask,
    PauseRun,
    QueuedCommand,
    RemovePipeline,
    ResumeRun,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Retries, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.run import Paused, RunCause, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, Settlement, TaskState
from nimbus.domain.writes import ConsumeCommand
from nimbus.engine.rules.commands.answers import refuse_command
from nimbus.engine.rules.commands.selections import next_parts
from tests.nimbus.definitions import active, digest_of
from tests.nimbus.engine_bench import NOW, RUN, Bench

P = PipelineName("p")
A, B = TaskName("a"), TaskName("b")
R, S = RUN, RunId("s")
SPEC = PipelineSpec(
    name=P,
    timeout=timedelta(hours=1),
    concurrency=Concurrency(limit=1),
    tasks=(
        TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py", retries=Retries(limit=1)),
        TaskSpec(name=B, kind=TaskKind.PYTHON, script="b.py", needs=(A,)),
    ),
)


def a_bench() -> Bench:
    """A leader with one pipeline and a started run."""
    bench = Bench()
    record = active(SPEC, schedule_position=NOW, updated_at=NOW)
    bench.cluster.change(pipelines={P: record})
    bench.elect(2)
    bench.submit(StartRun(pipeline=P, run_id=R))
    bench.decide()
    return bench


def answer(bench: Bench, command: Command) -> tuple[str, str]:
    """Code and message of a command's outcome."""
    key = bench.submit(command, by="ann")
    bench.decide()
    outcome = bench.cluster.world.outcomes[key]
    return outcome.code, outcome.message


def end(bench: Bench, task: TaskName, outcome: Outcome = Outcome.SUCCEEDED, number: int = 1) -> None:
    bench.end(AttemptId(R, task, number), outcome)
    bench.decide()


def states(bench: Bench, run: RunId = R) -> list[TaskState]:
    return [task.state for task in bench.run(run).tasks.values()]


RUNNING, WAITING, SUCCEEDED = TaskState.RUNNING, TaskState.WAITING, TaskState.SUCCEEDED


def test_run_opens_nothing_when_it_is_paused_and_what_runs_goes_on() -> None:
    bench = a_bench()

    code, message = answer(bench, PauseRun(run_id=R))
    end(bench, A)

    assert (code, bench.run().paused) == ("ok", Paused(by="ann", at=NOW))
    assert "what runs goes on" in message
    assert states(bench) == [SUCCEEDED, WAITING]


def test_run_goes_on_when_it_is_resumed() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A)

    code, _ = answer(bench, ResumeRun(run_id=R))

    assert (code, bench.run().paused) == ("ok", None)
    assert states(bench) == [SUCCEEDED, RUNNING]


def test_retry_waits_for_the_end_of_a_pause() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A, Outcome.FAILED)
    bench.clocks.pass_s(60)
    bench.decide()
    assert states(bench) == [WAITING, WAITING]

    answer(bench, ResumeRun(run_id=R))
    bench.decide()

    assert states(bench) == [RUNNING, WAITING]


def test_run_stays_paused_when_another_scheduler_leads() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A)

    bench.elect(3)
    bench.decide()
    assert states(bench) == [SUCCEEDED, WAITING]

    answer(bench, ResumeRun(run_id=R))
    assert states(bench) == [SUCCEEDED, RUNNING]


def test_deadline_counts_while_a_run_is_paused() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A)

    bench.clocks.pass_s(3601)
    bench.decide()

    assert bench.run().state is RunState.FAILED
    assert bench.run().reason.startswith("timed out")


def test_paused_run_ends_when_it_is_stopped() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A)

    answer(bench, StopRun(run_id=R, reason="late"))

    assert bench.run().state is RunState.STOPPED


def test_queued_run_does_not_start_when_it_is_paused_and_keeps_its_place() -> None:
    bench = a_bench()
    for run in (S, RunId("t")):
        answer(bench, StartRun(pipeline=P, run_id=run))
        bench.clocks.pass_s(1)
    answer(bench, PauseRun(run_id=S))
    answer(bench, StartRun(pipeline=P, run_id=RunId("u")))

    bench.elect(3)
    bench.decide()
    answer(bench, StopRun(run_id=R, reason="late"))
    end(bench, A, Outcome.STOPPED)
    assert (bench.run(S).state, bench.run(RunId("t")).state) == (RunState.QUEUED, RunState.RUNNING)

    answer(bench, ResumeRun(run_id=S))
    answer(bench, StopRun(run_id=RunId("t"), reason="late"))
    bench.end(AttemptId(RunId("t"), A, 1), Outcome.STOPPED)
    bench.decide()
    assert (bench.run(S).state, bench.run(RunId("u")).state) == (RunState.RUNNING, RunState.QUEUED)


def test_pausing_and_resuming_twice_is_the_same_as_once() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    bench.clocks.pass_s(5)
    again = answer(bench, PauseRun(run_id=R))
    at = bench.run().paused
    answer(bench, ResumeRun(run_id=R))
    resumed = answer(bench, ResumeRun(run_id=R))

    assert again == ("ok", "run p-1 was paused before, by ann at 2026-03-01 12:00:00Z")
    assert at == Paused(by="ann", at=NOW)
    assert resumed == ("ok", "run p-1 is not paused")


@pytest.mark.parametrize("command", [PauseRun, ResumeRun])
def test_command_about_a_run_is_refused_when_the_run_is_not_live(
    command: type[PauseRun | ResumeRun],
) -> None:
    bench = a_bench()
    end(bench, A)
    bench.end(AttemptId(R, B, 1), Outcome.SUCCEEDED)
    bench.decide()

    assert answer(bench, command(run_id=R))[0] == "run_finished"
    assert answer(bench, command(run_id=S))[0] == "unknown_run"


def test_pause_is_in_the_record_of_a_run() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))

    assert run_record.decode(run_record.encode_new(bench.run()), "r") == bench.run()


def test_run_and_its_stop_say_who_asked() -> None:
    bench = a_bench()
    answer(bench, StartRun(pipeline=P, run_id=S))
    answer(bench, StopRun(run_id=S, reason="late"))

    assert (bench.run(S).submitted_by, bench.run(S).reason) == ("ann", "stopped by ann: late")
    assert run_record.decode(run_record.encode_new(bench.run(S)), "s") == bench.run(S)


def test_scheduled_run_says_that_its_schedule_asked() -> None:
    bench = a_bench()
    spec = replace(SPEC, schedule=Schedule(cron="* * * * *", timezone="UTC"))
    bench.cluster.change(pipelines={P: active(spec, schedule_position=NOW, updated_at=NOW)})
    bench.elect(3)

    bench.clocks.pass_s(60)
    bench.decide()

    (run,) = (run for run in bench.cluster.world.runs.values() if run.cause is RunCause.SCHEDULE)
    assert run.submitted_by == "schedule"


def rerun(scope: Scope, *tasks: TaskName, of: RunId = R, **more: Any) -> StartRun:
    selection = Selection(scope=scope, tasks=tasks, reuse=of, is_rerun=True, **more)
    return StartRun(pipeline=P, run_id=S, selection=selection, release=digest_of(SPEC))


def failed_bench() -> Bench:
    """A leader with a run in which `a` has succeeded and `b` has failed."""
    bench = a_bench()
    end(bench, A)
    end(bench, B, Outcome.FAILED)
    return bench


def test_rerun_runs_what_failed_and_keeps_dates_and_history() -> None:
    bench = failed_bench()
    before = bench.run()

    assert answer(bench, rerun(Scope.FAILED))[0] == "ok"

    assert states(bench, S) == [SUCCEEDED, RUNNING]
    assert bench.run(S).rerun_of == R
    assert bench.run() == before


def test_rerun_of_a_live_run_waits_for_its_end_and_holds_up_nothing() -> None:
    bench = a_bench()
    key = bench.submit(rerun(Scope.FAILED), by="ann")
    bench.decide()
    assert key in bench.cluster.world.commands
    assert answer(bench, StopRun(run_id=R, reason="late"))[0] == "ok"

    bench.elect(3)
    end(bench, A, Outcome.STOPPED)

    assert bench.cluster.world.outcomes[key].code == "ok"
    assert states(bench, S) == [RUNNING, WAITING]


@pytest.mark.parametrize("epoch", [2, 3])
def test_rerun_that_waits_is_withdrawn_at_once_when_it_is_stopped(epoch: int) -> None:
    bench = a_bench()
    keys = [bench.submit(rerun(Scope.FAILED), by="ann") for _ in range(2)]
    bench.decide()
    if epoch > 2:
        bench.elect(epoch)

    assert answer(bench, StopRun(run_id=S, reason="not needed")) == (
        "ok",
        "run s is withdrawn: it never began",
    )

    outcomes = [bench.cluster.world.outcomes[key] for key in keys]
    assert [(one.code, one.message, one.run_id) for one in outcomes] == [
        ("withdrawn", "run s was stopped by ann before it began: not needed", S)
    ] * 2
    end(bench, A, Outcome.FAILED)
    assert S not in bench.cluster.world.runs
    assert states(bench) == [WAITING, WAITING]


def test_rerun_that_is_being_built_is_refused_when_its_pipeline_is_removed() -> None:
    bench = failed_bench()
    bench.term._start_effect = bench.effects.append  # the run is built later
    key = bench.submit(rerun(Scope.FAILED), by="ann")
    bench.decide()

    assert answer(bench, RemovePipeline(pipeline=P))[0] == "ok"

    assert bench.cluster.world.outcomes[key].code == "unknown_pipeline"


def test_rerun_that_has_begun_is_stopped_like_any_run() -> None:
    bench = failed_bench()
    bench.submit(rerun(Scope.FAILED), by="ann")

    assert answer(bench, StopRun(run_id=S, reason="late")) == ("ok", "run s is being stopped")

    assert bench.run(S).verdict is RunState.STOPPED


def test_rerun_starts_once_when_it_is_asked_for_twice() -> None:
    bench = failed_bench()
    answer(bench, rerun(Scope.FAILED))

    assert answer(bench, rerun(Scope.FAILED)) == ("ok", "run s was started before; nothing is started twice")


def mark(task: TaskName, state: Literal["succeeded", "skipped"], run: RunId = R) -> MarkTask:
    return MarkTask(run_id=run, task=task, state=state, reason="by hand")


def test_waiting_task_that_is_marked_ends_at_once_and_says_who_marked_it() -> None:
    bench = a_bench()

    assert answer(bench, mark(B, "succeeded"))[0] == "ok"
    assert bench.run().tasks[B].settled == Settlement(at=NOW, by="ann", reason="by hand")
    end(bench, A)

    assert bench.run().state is RunState.SUCCEEDED
    assert run_record.decode(run_record.encode_new(bench.run()), "r") == bench.run()


def test_task_behind_a_marked_one_begins() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A, Outcome.FAILED)

    assert answer(bench, mark(A, "succeeded"))[0] == "ok"
    answer(bench, ResumeRun(run_id=R))

    assert states(bench) == [SUCCEEDED, RUNNING]


def test_task_behind_one_that_is_marked_as_skipped_is_skipped() -> None:
    bench = a_bench()
    answer(bench, PauseRun(run_id=R))
    end(bench, A, Outcome.FAILED)

    answer(bench, mark(A, "skipped"))

    assert bench.run().state is RunState.SUCCEEDED
    assert states(bench) == [TaskState.SKIPPED, TaskState.SKIPPED]


def test_task_of_a_queued_run_can_be_marked() -> None:
    bench = a_bench()
    answer(bench, StartRun(pipeline=P, run_id=S))

    assert answer(bench, mark(A, "succeeded", S))[0] == "ok"

    assert (bench.run(S).state, states(bench, S)) == (RunState.QUEUED, [SUCCEEDED, WAITING])


def test_task_behind_one_that_was_marked_in_a_queued_run_begins_when_the_run_starts() -> None:
    bench = a_bench()
    bench.submit(StartRun(pipeline=P, run_id=S))
    bench.decide()
    answer(bench, mark(A, "succeeded", S))

    answer(bench, StopRun(run_id=R, reason="make room"))
    end(bench, A, Outcome.STOPPED)

    assert (bench.run(S).state, states(bench, S)) == (RunState.RUNNING, [SUCCEEDED, RUNNING])


def test_mark_is_refused_unless_its_task_waits() -> None:
    bench = a_bench()

    assert answer(bench, mark(A, "succeeded"))[0] == "not_waiting"
    assert answer(bench, mark(TaskName("z"), "succeeded"))[0] == "unknown_task"
    assert answer(bench, mark(A, "succeeded", S))[0] == "unknown_run"


def test_marking_twice_is_the_same_as_once() -> None:
    bench = a_bench()
    answer(bench, mark(B, "skipped"))

    assert answer(bench, mark(B, "skipped")) == ("ok", "task b of run p-1 was marked skipped before")


def test_reruns_of_two_selections_in_one_second_have_different_ids() -> None:
    targets = dict.fromkeys(map("r{}".format, range(1000)), P)
    command = ActOnSelection(action="rerun", of="runs", targets=targets, reason="again")
    runs = list[str]()
    for number in (1, 10):
        name, rest = CommandId(f"cmd-{number:010d}"), command
        queued = QueuedCommand(id=name, command=command, submitted_at=NOW, submitted_by="ann")
        while rest.targets:
            parts, rest = next_parts(queued, rest, {}, NOW)
            runs += [part.command.run_id for part in parts if isinstance(part.command, StartRun)]

    assert len({*runs}) == len(runs) == 2000
    assert runs[7] == f"{P}-20260301t120000z-1-0007"


def test_selection_that_cannot_go_on_says_how_many_commands_it_has_queued() -> None:
    left = ActOnSelection(action="stop", of="runs", targets={"r9": P}, queued=6, reason="x")
    queued = QueuedCommand(id=CommandId("cmd-1"), command=left, submitted_at=NOW, submitted_by="ann")

    writes = refuse_command(a_bench().term.state, queued, "conflict", "it is gone", NOW).writes

    assert [write.outcome.message for write in writes if isinstance(write, ConsumeCommand)] == [
        "it ended after 6 commands: it is gone"
    ]
