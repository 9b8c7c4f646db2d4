"""One term, case by case: steps of clocks, lost replies, parked runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from nimbus.api.views import worker_models
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.commands import Abdicate, RemovePipeline, StopRun
from nimbus.domain.ids import AttemptId, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import CatchUp, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.engine.decision import ArchiveOutcomes, ArchiveRun, BuildRun, Effect, ResignLeadership
from nimbus.engine.events import BuildingFailed, OutcomesArchived, RunArchived
from nimbus.engine.leader_term import TIDY_EVERY_S
from nimbus.engine.state_reader import YOUNG_S
from nimbus.engine.work_queue import Key
from nimbus.ports import StoreUnavailableError
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import ATTEMPT, NAME, NOW, RUN, SPEC, START, WORKER, Bench
from tests.nimbus.loading import recover
from tests.nimbus.store_reader import services_over


def test_a_silent_attempt_is_not_fenced_when_the_wall_clock_steps() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    bench.claim(has_heartbeat=False)
    bench.cluster.change(workers={})
    bench.decide()

    bench.clocks.wall += timedelta(hours=1)
    bench.decide()
    assert bench.outcome() is None

    bench.clocks.wall -= timedelta(hours=2)
    bench.clocks.pass_s(29)
    bench.decide()
    assert bench.outcome() is None
    bench.clocks.pass_s(1)
    bench.decide()
    assert bench.outcome() is Outcome.LOST
    assert "silent for 30 s" in bench.run().tasks[TaskName("a")].attempts[0].reason


def test_an_attempt_takes_a_slot_of_the_worker_that_reaps_it_in_the_engine_and_the_api() -> None:
    bench = Bench()
    reaper = replace(WORKER, id=WorkerId("w2"), slots=1)
    bench.submit(START)
    bench.decide()
    bench.claim(has_heartbeat=False)
    bench.cluster.change(workers={reaper.id: reaper})
    bench.decide()
    bench.clocks.pass_s(60)
    bench.decide()

    assert bench.run().tasks[TaskName("a")].attempts[0].reaper == reaper.id
    bench.cluster.change(workers={WORKER.id: WORKER, reaper.id: reaper})
    bench.decide()
    services = services_over(bench.cluster, bench.clocks, lambda: None)
    assert list(bench.term.state.attempts.workers.free) == [WORKER]
    rows = worker_models([WORKER, reaper], services.reader.orders([WORKER.id, reaper.id]), {}, {})
    assert {row.id: row.busy for row in rows} == {"w1": 0, "w2": 1}


def test_an_attempt_that_nobody_claims_is_fenced_when_the_wall_clock_reaches_its_limit() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()

    bench.clocks.wall += timedelta(minutes=10)  # the times of records belong to this clock
    bench.term.decide()

    assert bench.outcome() is Outcome.FENCED


def test_the_wakeup_is_after_what_is_left_of_a_silence_when_the_wall_clock_stepped() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    bench.claim(has_heartbeat=False)
    bench.cluster.change(workers={})
    bench.decide()
    bench.clocks.pass_s(10)
    bench.clocks.wall += timedelta(hours=1)
    bench.decide()

    assert bench.term.idle_s() == pytest.approx(20)


class CountingStore(DictLeaderStore):
    """Records which attempts are read completely, and sends no notifications."""

    def __init__(self, cluster: DictCluster, epoch: int) -> None:
        super().__init__(cluster, epoch)
        self.read: list[AttemptId] = []

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """Record the attempts."""
        self.read += attempts
        return super().read_slots(attempts)


def claimed() -> tuple[Bench, CountingStore]:
    """A run with one claimed attempt, and the store that its leader reads."""
    bench = Bench()
    store = bench.elect(2, CountingStore)._store
    assert isinstance(store, CountingStore)
    bench.submit(START)
    bench.decide()
    bench.claim()
    return bench, store


def test_an_attempt_is_read_in_full_only_when_it_lasts() -> None:
    bench, store = claimed()
    term = bench.term

    assert store.read == []
    assert term.idle_s() == pytest.approx(YOUNG_S)
    bench.clocks.pass_s(YOUNG_S)
    term.tend()
    term.tend()

    assert store.read == [ATTEMPT], "once: from then on its watch tells"
    assert term.state.attempts.slots[ATTEMPT].claim is not None


def test_an_attempt_that_ends_at_once_is_read_once_and_in_part() -> None:
    bench, store = claimed()
    bench.end(ATTEMPT, Outcome.SUCCEEDED)
    bench.decide()
    bench.clocks.pass_s(YOUNG_S)
    bench.term.tend()

    assert store.read == []
    assert bench.run().state is RunState.SUCCEEDED


def bad_run(bench: Bench, name: str) -> Run:
    """A run with an open attempt, for which a rule fails."""
    bench.submit(replace(START, run_id=RunId(name)))
    bench.decide()
    run = bench.run(RunId(name))
    lost = TaskSpec(name=TaskName("b"), kind=TaskKind.PYTHON, script="b.py", needs=(TaskName("nowhere"),))
    return replace(run, tasks=Tasks([*run.tasks.values(), TaskRun(spec=lost)]))


def test_the_slot_of_a_parked_run_stays_busy() -> None:
    bench = Bench()
    bad = bad_run(bench, "bad")
    bench.cluster.change(runs={bad.id: bad})
    bench.elect(2)
    bench.submit(START)
    bench.submit(replace(START, run_id=RunId("p-2")))
    bench.decide()

    assert Key("run", "bad") in bench.term.state.work.parked
    assert bench.run().open_attempts() == (ATTEMPT,)
    assert bench.run(RunId("p-2")).open_attempts() == (), "the worker has two slots"


def test_a_pipeline_is_not_removed_when_its_live_run_is_parked() -> None:
    bench = Bench()
    bad = bad_run(bench, "bad")
    bench.cluster.change(runs={bad.id: bad})
    bench.elect(2)
    bench.decide()
    asked = bench.submit(RemovePipeline(pipeline=NAME))
    bench.decide()

    assert bench.cluster.world.outcomes[asked].code == "pipeline_in_use"


def test_the_term_goes_on_when_many_runs_are_bad() -> None:
    bench = Bench()
    bad = bad_run(bench, "bad")
    names = [RunId(f"bad-{number}") for number in range(150)]
    many = replace(WORKER, slots=200)
    bench.cluster.change(runs={name: replace(bad, id=name) for name in names}, workers={many.id: many})
    bench.elect(2)
    bench.submit(START)
    bench.decide()

    assert len(bench.term.state.work.parked) == 150
    assert bench.run().open_attempts() == (ATTEMPT,)


def test_the_term_ends_when_all_writes_fail_for_no_known_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.cluster.change(workers={})
    for number in range(150):
        bench.submit(replace(START, run_id=RunId(f"p-{number}")))
    bench.decide()

    def broken(*_args: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(DictLeaderStore, "_commit", broken)
    bench.elect(2)
    bench.cluster.change(workers={WORKER.id: WORKER})

    with pytest.raises(RuntimeError, match="of ours"):
        bench.decide()


def test_a_large_run_is_dropped_in_steps_and_its_record_last() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    run = bench.run()
    (task,) = run.tasks.values()
    tried = replace(task.attempts[0], number=3, outcome=Outcome.SUCCEEDED, ended_at=NOW)
    names = [TaskName(f"t{number:03}") for number in range(400)]
    tasks = Tasks(
        replace(task, spec=replace(task.spec, name=name), state=TaskState.SUCCEEDED, attempts=(tried,))
        for name in names
    )
    done = replace(run, state=RunState.SUCCEEDED, finished_at=NOW, tasks=tasks)
    ids = [AttemptId(RUN, name, number) for name in names for number in (1, 2, 3)]
    bench.cluster.change(runs={RUN: done}, slots={attempt: Slots() for attempt in ids})
    bench.elect(2)
    bench.decide()
    bench.term.apply((RunArchived(RUN),))
    bench.clocks.pass_s(3600)
    before = len(bench.cluster.commits)
    bench.decide()

    steps = bench.cluster.commits[before:]
    assert max(len(writes) for writes in steps) <= 201
    assert [type(write) for writes in steps for write in writes] == [w.RemoveAttempt] * 1200 + [w.RemoveRun]
    assert (bench.cluster.world.runs, bench.cluster.world.slots) == ({}, {})


def test_a_refusal_is_forgotten_once_history_has_it_also_under_a_successor() -> None:
    bench = Bench()
    key = bench.submit(StopRun(run_id=RunId("nothing"), reason="x"), by="ann")
    bench.decide()
    bench.clocks.pass_s(7200)

    def archiving() -> list[ArchiveOutcomes]:
        return [effect for effect in bench.effects if isinstance(effect, ArchiveOutcomes)]

    bench.term.tend()
    bench.clocks.pass_s(7200)
    bench.term.tend()
    assert len(archiving()) == 1, "one at a time"
    (refusal,) = archiving()[0].outcomes
    assert (refusal.command, refusal.kind, refusal.submitted_by) == (key, "stop_run", "ann")
    assert key in bench.cluster.world.outcomes

    bench.elect(2)
    bench.term.tend()
    assert [effect.outcomes for effect in archiving()] == [(refusal,)] * 2
    bench.term.apply((OutcomesArchived(()),))  # it failed, without an outage
    bench.term.tend()
    assert key in bench.cluster.world.outcomes
    bench.clocks.pass_s(TIDY_EVERY_S)
    bench.term.tend()
    assert len(archiving()) == 3
    bench.term.apply((OutcomesArchived((key,)),))
    bench.term.tend()
    assert key not in bench.cluster.world.outcomes


def test_an_outcome_says_which_pipeline_it_is_about() -> None:
    bench = Bench()
    keys = [bench.submit(START), bench.submit(RemovePipeline(pipeline=NAME))]
    bench.decide()
    keys.append(bench.submit(StopRun(run_id=RUN, reason="x")))
    keys.append(bench.submit(Abdicate(reason="x")))
    bench.decide()

    assert [bench.cluster.world.outcomes[key].pipeline for key in keys] == [NAME, NAME, NAME, None]


class LostReplies(DictLeaderStore):
    """Executes the next write, but its answer is lost."""

    def _commit(self, writes: Sequence[w.Write]) -> None:
        super()._commit(writes)
        raise StoreUnavailableError("no answer")


def resigned(bench: Bench) -> list[Effect]:
    return [effect for effect in bench.effects if isinstance(effect, ResignLeadership)]


def test_an_abdication_is_done_when_the_reply_to_its_write_was_lost() -> None:
    bench = Bench()
    asked = bench.submit(Abdicate(reason="upgrade"))
    bench.elect(2, LostReplies)
    with pytest.raises(StoreUnavailableError):
        bench.decide()
    assert bench.cluster.world.outcomes[asked].accepted
    assert resigned(bench) == []

    recover(bench.term)
    bench.decide()
    recover(bench.term)
    bench.decide()

    assert resigned(bench) == [ResignLeadership("upgrade")], "once, however often everything is read"


def test_a_successor_does_not_obey_the_abdication_of_its_predecessor() -> None:
    bench = Bench()
    bench.submit(Abdicate(reason="upgrade"))
    bench.decide()
    bench.elect(2)
    bench.decide()
    assert resigned(bench) == [ResignLeadership("upgrade")], "by epoch 1"

    bench.submit(Abdicate(reason="again"))
    bench.decide()
    assert resigned(bench)[1:] == [ResignLeadership("again")]


def test_a_parked_command_holds_back_no_other_after_everything_was_read_again() -> None:
    bench = Bench()
    bench.cluster.change(workers={})
    first, second = bench.submit(START), bench.submit(replace(START, run_id=RunId("p-2")))
    bench.term.state.park(Key("command", first), "no process")
    recover(bench.term)
    bench.decide()

    assert (first in bench.cluster.world.outcomes, second in bench.cluster.world.outcomes) == (False, True)


class BuildsLater(Bench):
    """A leader that cannot build a run before the test allows it."""

    builds = False

    def _start(self, effect: Effect) -> None:
        if isinstance(effect, BuildRun) and not self.builds:
            self.term.apply((BuildingFailed(effect.key, effect.draft, RuntimeError("not now")),))
        else:
            super()._start(effect)

    def tidy(self) -> None:
        self.clocks.pass_s(TIDY_EVERY_S + 1)
        self.term.tend()
        self.decide()


@pytest.mark.parametrize("catchup", list(CatchUp))
def test_a_fire_is_not_lost_when_its_run_is_built_long_after(catchup: CatchUp) -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC", catchup=catchup)
    bench = BuildsLater()
    bench.cluster.change(pipelines={NAME: active(replace(SPEC, schedule=hourly), schedule_position=NOW)})
    bench.elect(2)
    bench.clocks.pass_s(3601)
    bench.decide()
    for _ in range(70):
        bench.tidy()
    bench.builds = True
    bench.tidy()

    assert "p-20260301t130000z" in bench.cluster.world.runs


def test_a_run_that_could_not_be_built_before_its_fire_time_is_built_when_it_is_due() -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC")
    bench = BuildsLater()
    bench.cluster.change(pipelines={NAME: active(replace(SPEC, schedule=hourly), schedule_position=NOW)})
    bench.elect(2)
    bench.clocks.pass_s(3599)
    bench.decide()
    assert bench.term.state.work.parked == {}

    bench.builds = True
    bench.clocks.pass_s(1)
    bench.decide()

    assert "p-20260301t130000z" in bench.cluster.world.runs


def test_a_parked_command_that_is_gone_ends_no_term() -> None:
    bench = BuildsLater()
    bench.term.tend()
    command = bench.submit(START)
    bench.decide()
    assert Key("command", command) in bench.term.state.work.parked

    bench.cluster.change(commands={})  # by hand
    recover(bench.term)
    bench.tidy()

    assert bench.term.state.work.parked == {}


@pytest.mark.parametrize("key", [Key("schema"), Key("abdication")], ids=lambda key: key.kind)
def test_a_subject_of_the_whole_cluster_is_asked_about_again_after_it_was_parked(key: Key) -> None:
    bench, read = Bench(), list[str]()
    bench.term.tend()
    bench.term._read_run = read.append  # type: ignore[method-assign,assignment]
    bench.term.state.park(key, "test")
    bench.clocks.pass_s(TIDY_EVERY_S + 1)

    bench.term.tend()

    assert (read, bench.term.state.work.first(key.kind)) == ([], key)


def test_what_each_new_leader_begins_anew_is_logged_for_debugging_only() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    bench.claim()
    bench.end(ATTEMPT, Outcome.SUCCEEDED)

    with capture_logs() as lines:
        bench.decide()

    assert bench.effects == [ArchiveRun(RUN)]
    assert [line["log_level"] for line in lines if line["event"] == "run_archive_started"] == ["debug"]
