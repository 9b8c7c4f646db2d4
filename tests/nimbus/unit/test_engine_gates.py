"""Shared limits of tasks: of their run, and of pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import (
    Command,
    CommandOutcome,
    CordonWorker,
    PublishRelease,
    QueuedCommand,
    RemovePool,
    RemoveVariable,
    SetPool,
    SetVariable,
    UncordonWorker,
)
from nimbus.domain.ids import CommandId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import FailureStrategy, PipelineSpec, Priority, TaskKind, TaskSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.engine.decision import Decision
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from nimbus.engine.state.attempts import Silence
from nimbus.engine.work_queue import Instant

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORKER = WorkerInfo(
    id=WorkerId("w"),
    host=HostId("h"),
    hostname="h",
    pid=1,
    slots=10,
    version="1",
    started_at=NOW,
    reported_at=NOW,
)


def at(now: datetime = NOW) -> Instant:
    return Instant(now, (now - NOW).total_seconds())


def a_task(
    name: str, *, pools: Mapping[str, int] | None = None, kind: TaskKind = TaskKind.PYTHON
) -> TaskSpec:
    return TaskSpec(name=TaskName(name), kind=kind, script="a.py", pools=pools or {})


def a_run(name: str, *tasks: TaskSpec, most: int | None = None, priority: Priority = Priority.MEDIUM) -> Run:
    return Run(
        id=RunId(name),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=priority,
        failure_strategy=FailureStrategy.CONTINUE,
        max_parallel_tasks=most,
        tasks=Tasks(TaskRun(spec=task) for task in tasks),
    )


def known(*runs: Run, slots: int = 10) -> State:
    state = State(epoch=3, schema=1)
    state.put_workers([replace(WORKER, slots=slots)], at())
    for run in runs:
        state.runs.put(run, at())
    state.finish_loading()
    return state


def open_all(state: State, now: datetime = NOW) -> list[str]:
    """Decide until nothing is left to decide. Returns the opened attempts, in order."""
    opened = []
    state.wake(at(now))
    while (key := next_key(state)) is not None:
        answer = ask(state, key, at(now))
        if isinstance(answer, Decision):
            state.apply(answer, at(now))
            if answer.name == "attempt_opened":
                opened.append(answer.about["attempt"])
        else:
            state.postpone(key, answer)
    return opened


def end(state: State, attempt: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    found = next(known for known in state.attempts.slots if str(known) == attempt)
    ended = End(attempt=attempt, outcome=outcome, written_by="r", ended_at=NOW)
    state.attempts.put_slots(found, Slots(end=ended), at())


def test_run_opens_no_more_tasks_at_once_than_it_may() -> None:
    state = known(a_run("r", a_task("a"), a_task("b"), a_task("c"), most=2))
    assert open_all(state) == ["r.a.1", "r.b.1"]

    end(state, "r.b.1")

    assert open_all(state) == ["r.c.1"]


def test_run_at_its_limit_holds_up_no_other_run() -> None:
    narrow = a_run("narrow", a_task("a"), a_task("b"), most=1, priority=Priority.HIGHEST)
    wide = a_run("wide", a_task("a"), a_task("b"))

    assert open_all(known(narrow, wide)) == ["narrow.a.1", "wide.a.1", "wide.b.1"]


def test_limit_of_a_run_counts_tasks_of_all_needs() -> None:
    spark = a_task("b", kind=TaskKind.PYSPARK)
    state = known(a_run("r", a_task("a"), spark, most=1))
    assert open_all(state) == ["r.a.1"]

    end(state, "r.a.1")

    assert open_all(state) == ["r.b.1"]


def test_many_limited_runs_share_the_slots_that_there_are() -> None:
    runs = [a_run(f"r{number}", a_task("a"), a_task("b"), most=1) for number in range(5)]
    state = known(*runs, slots=3)
    opened = open_all(state)
    assert opened == ["r0.a.1", "r1.a.1", "r2.a.1"]
    for _ in range(10):
        end(state, opened[0])
        opened = [*opened[1:], *open_all(state)]
        assert (
            len({str(attempt).split(".")[0] for attempt in state.attempts.slots})
            == len(state.attempts.slots)
            <= 3
        )

    assert not state.runs.live


def pooled(*runs: Run, slots: int = 10, **pools: int) -> State:
    state = known(*runs, slots=slots)
    state.put_settings(ClusterSettings(pools=pools), at())
    return state


ONE, TWO, TEN = {"db": 1}, {"db": 2}, {"db": 10}


def test_open_attempts_take_no_more_of_a_pool_than_it_has() -> None:
    state = pooled(a_run("r", *(a_task(name, pools=TWO) for name in "abc")), db=5)
    assert open_all(state) == ["r.a.1", "r.b.1"]

    end(state, "r.a.1")

    assert open_all(state) == ["r.c.1"]


def test_nobody_overtakes_in_a_pool_and_all_others_go_on() -> None:
    small = a_run("small", a_task("a", pools=ONE), a_task("b", pools=ONE), priority=Priority.HIGHEST)
    large = a_run("large", a_task("a", pools=TEN), priority=Priority.HIGH)
    late = a_run("late", a_task("a", pools=ONE), a_task("b"), a_task("c", pools={"api": 1}))
    state = pooled(small, large, late, db=10, api=1)
    assert open_all(state) == ["small.a.1", "small.b.1", "late.b.1", "late.c.1"]

    end(state, "small.a.1")
    assert open_all(state) == []
    end(state, "small.b.1")
    assert open_all(state) == ["large.a.1"]
    end(state, "large.a.1")
    assert open_all(state) == ["late.a.1"]


def test_pool_is_held_no_longer_when_the_task_that_holds_it_is_stopped() -> None:
    state = pooled(a_run("r", a_task("a", pools=TEN)), a_run("s", a_task("a", pools=ONE)), db=5)
    assert open_all(state) == []

    state.runs.put(
        lifecycle.stop(state.runs.live[RunId("r")], verdict=RunState.STOPPED, reason="", now=NOW), at()
    )

    assert open_all(state) == ["s.a.1"]


def test_pool_is_held_no_longer_when_the_run_of_the_task_that_holds_it_is_at_its_limit() -> None:
    full = a_run("full", a_task("x", pools=TEN), a_task("y"), most=1, priority=Priority.HIGHEST)
    state = pooled(full, a_run("other", a_task("a", pools=ONE)), db=5)

    assert open_all(state) == ["full.y.1", "other.a.1"]


def test_task_that_takes_of_two_pools_waits_for_both() -> None:
    both = a_run("both", a_task("a", pools={"api": 1, "db": 1}))
    first = a_run("alone", a_task("a", pools={"api": 1}), priority=Priority.HIGHEST)
    state = pooled(first, both, db=1, api=1)
    assert open_all(state) == ["alone.a.1"]

    end(state, "alone.a.1")

    assert open_all(state) == ["both.a.1"]


def test_pool_of_size_zero_drains_and_goes_on_when_it_grows() -> None:
    state = pooled(a_run("r", a_task("a", pools=ONE), a_task("b", pools=ONE)), db=1)
    assert open_all(state) == ["r.a.1"]
    state.put_settings(ClusterSettings(pools={"db": 0}), at())
    end(state, "r.a.1")
    assert open_all(state) == []

    state.put_settings(ClusterSettings(pools={"db": 1}), at())

    assert open_all(state) == ["r.b.1"]


def test_pool_is_given_back_when_an_attempt_ends_and_a_retry_waits() -> None:
    state = pooled(a_run("r", a_task("a", pools=ONE)), a_run("s", a_task("a", pools=ONE)), db=1)
    assert open_all(state) == ["r.a.1"]

    end(state, "r.a.1", Outcome.LOST)

    assert open_all(state) == ["s.a.1"]
    assert state.runs.live[RunId("r")].tasks[TaskName("a")].retry_at is not None


def test_successor_counts_what_open_attempts_take() -> None:
    state = pooled(a_run("r", a_task("a", pools=ONE), a_task("b", pools=ONE)), db=1)
    open_all(state)

    heir = pooled(*state.runs.live.values(), db=1)

    assert open_all(heir) == []
    assert heir.attempts.pools.used("db") == 1


def asked(state: State, command: Command) -> CommandOutcome:
    """The outcome of a command."""
    state.commands.put(QueuedCommand(id=CommandId("cmd-1"), command=command, submitted_at=NOW))
    while (key := next_key(state)) is not None:
        answer = ask(state, key, at())
        if not isinstance(answer, Decision):
            state.postpone(key, answer)
            continue
        state.apply(answer, at())
        for write in answer.writes:
            if isinstance(write, w.ConsumeCommand):
                return write.outcome
    raise AssertionError("it was not decided")


def test_pool_is_set_changed_and_removed_by_commands() -> None:
    state = known()

    assert asked(state, SetPool(pool="db", size=3)).accepted
    assert asked(state, SetPool(pool="db", size=4)).accepted
    assert state.settings.pools == {"db": 4}
    assert asked(state, RemovePool(pool="db")).accepted
    assert state.settings.pools == {}
    assert asked(state, RemovePool(pool="db")).code == "unknown_pool"


def test_pool_is_not_removed_while_a_live_run_needs_it() -> None:
    state = pooled(a_run("r", a_task("a", pools=ONE)), db=1)

    refused = asked(state, RemovePool(pool="db"))

    assert refused.code == "pool_in_use"
    assert "(r)" in refused.message


def test_definition_that_takes_of_an_unknown_pool_is_refused() -> None:
    spec = PipelineSpec(name=PipelineName("p"), tasks=(a_task("a", pools=TWO),))
    state = known()
    release = ReleaseOf(spec.name, ReleaseDigest("b" * 64))
    state.commands.releases.results[release] = spec

    refused = asked(state, PublishRelease(pipeline=spec.name, digest=release.digest))

    assert refused.code == "unknown_pool"
    assert refused.message.startswith("task a takes 2 of pool db, which does not exist")


def test_definition_that_notifies_an_unknown_target_is_refused() -> None:
    rule = NotifyRule(on=(AlertEvent.FAILED,), to="oncall")
    spec = PipelineSpec(name=PipelineName("p"), notify=(rule,), tasks=(a_task("a"),))
    state = known()
    release = ReleaseOf(spec.name, ReleaseDigest("b" * 64))
    state.commands.releases.results[release] = spec

    refused = asked(state, PublishRelease(pipeline=spec.name, digest=release.digest))

    assert refused.code == "unknown_target"
    assert "notify names the target oncall" in refused.message


def test_cordoned_worker_is_given_nothing_until_it_is_uncordoned() -> None:
    state = known(a_run("r", a_task("a")))
    assert asked(state, CordonWorker(worker=WORKER.id, reason="disk")).accepted
    assert open_all(state) == []
    state.put_workers([replace(WORKER, load_average=1.0)], at())  # it reports again
    assert open_all(state) == []

    assert asked(state, UncordonWorker(worker=WORKER.id)).accepted

    assert open_all(state) == ["r.a.1"]


def test_cordoned_worker_keeps_what_it_has() -> None:
    state = known(a_run("r", a_task("a")))
    open_all(state)

    asked(state, CordonWorker(worker=WORKER.id, reason="disk"))

    assert [str(attempt) for attempt in state.attempts.slots] == ["r.a.1"]
    assert open_all(state) == []


def test_task_waits_for_a_worker_with_all_its_labels_and_holds_up_no_other() -> None:
    labelled = replace(a_task("a"), runs_on=("eu", "gpu"))
    state = known(a_run("r", labelled, priority=Priority.HIGHEST), a_run("s", a_task("a")))
    assert open_all(state) == ["s.a.1"]

    half = replace(WORKER, id=WorkerId("half"), labels=("gpu",))
    state.put_workers([WORKER, half], at())
    assert open_all(state) == []
    state.put_workers([WORKER, half, replace(half, id=WorkerId("whole"), labels=("eu", "gpu"))], at())

    assert open_all(state) == ["r.a.1"]
    assert state.runs.live[RunId("r")].tasks[TaskName("a")].attempts[0].worker == "whole"


def test_worker_whose_host_has_too_little_room_is_given_nothing_new() -> None:
    state = known(a_run("r", a_task("a")))
    state.put_workers([replace(WORKER, lacks="1 MiB of disk free")], at())
    assert open_all(state) == []

    state.put_workers([WORKER], at())

    assert open_all(state) == ["r.a.1"]


def test_task_starts_no_sooner_than_start_after_its_needs_are_met_under_any_leader() -> None:
    late = replace(a_task("b"), needs=(TaskName("a"),), start_after=timedelta(minutes=10))
    state = known(a_run("r", a_task("a"), late))
    open_all(state)
    end(state, "r.a.1")
    assert open_all(state) == []

    heir = known(*state.runs.live.values())

    assert open_all(heir, NOW + timedelta(minutes=9)) == []
    assert open_all(heir, NOW + timedelta(minutes=10)) == ["r.b.1"]


def test_variable_is_set_changed_and_removed_by_commands() -> None:
    state = known()

    assert asked(state, SetVariable(name="dwh", value="a")).accepted
    assert asked(state, SetVariable(name="dwh", value="b")).accepted
    assert state.settings.variables == {"dwh": "b"}
    assert asked(state, RemoveVariable(name="dwh")).accepted
    assert asked(state, RemoveVariable(name="dwh")).code == "unknown_variable"


def test_variables_are_bounded_together() -> None:
    state = known()
    codes = [asked(state, SetVariable(name=f"v{n}", value="x" * 1024)).code for n in range(40)]

    assert codes[:30] == ["ok"] * 30
    assert codes[-1] == "too_many_variables"


def test_definition_that_takes_a_variable_that_is_not_there_is_refused() -> None:
    spec = PipelineSpec(name=PipelineName("p"), tasks=(a_task("a"),), variables=("dwh",))
    state = known()
    release = ReleaseOf(spec.name, ReleaseDigest("b" * 64))
    state.commands.releases.results[release] = spec

    refused = asked(state, PublishRelease(pipeline=spec.name, digest=release.digest))

    assert (refused.code, "vars.dwh" in refused.message) == ("unknown_variable", True)


def test_silence_of_a_runner_begins_when_its_claim_is_seen_not_when_its_worker_fell_silent() -> None:
    state = known(a_run("r", a_task("a")))
    assert open_all(state) == ["r.a.1"]
    (attempt,) = state.attempts.slots
    state.put_workers([], at(NOW + timedelta(seconds=1)))
    assert state.attempts.silent == {attempt: Silence(is_claimed=False, since_s=1.0, worker=WORKER.id)}
    claim = Claim(attempt=str(attempt), worker=WORKER.id, host=HostId("h"), pid=1, claimed_at=NOW)

    state.attempts.put_slots(attempt, Slots(claim=claim), at(NOW + timedelta(seconds=29)))

    assert state.attempts.silent == {attempt: Silence(is_claimed=True, since_s=29.0, worker=WORKER.id)}


def test_silence_ends_when_its_worker_is_seen_while_all_is_read_again() -> None:
    before = known(a_run("r", a_task("a")))
    assert open_all(before) == ["r.a.1"]
    before.put_workers([], at(NOW + timedelta(seconds=1)))
    state = State(epoch=before.epoch, schema=before.leadership.schema, policy=before.policy)
    state.keep_from(before)

    state.put_workers([WORKER], at(NOW + timedelta(seconds=2)))  # first: its runs are read after it

    assert before.attempts.silent
    assert state.attempts.silent == {}
