"""Holds: nothing of a covered pipeline starts, what runs goes on, the catch-up deals with what came due."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule, message
from nimbus.domain.cluster.settings import ClusterSettings, Hold, HoldOf
from nimbus.domain.commands import (
    ActivatePipeline,
    CommandOutcome,
    CreateBackfill,
    SetHold,
    SetOwner,
)
from nimbus.domain.ids import BackfillId, PipelineName, RunId
from nimbus.domain.pipelines.backfill import BackfillRequest
from nimbus.domain.pipelines.pipeline import CatchUp, Schedule
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.decision import Decision, NoDecision
from nimbus.engine.policy import AlertPolicy, Policy
from nimbus.engine.rules import due
from tests.nimbus.children_stage import CHILD, LOAD, parent, starting
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NAME, NOW
from tests.nimbus.unit.test_api_explanations import A, Stage, spec
from tests.nimbus.unit.test_engine_due import changed, pipeline, stage_of

MINUTE = timedelta(minutes=1)
FREEZE = Hold(of=HoldOf.ALL, reason="month end", until=NOW + 10 * MINUTE, held_at=NOW)
END = SetHold(name="freeze", hold=None)


def freeze(**said: Any) -> SetHold:
    return SetHold(name="freeze", hold=replace(FREEZE, **said))


def scheduled(catchup: CatchUp, **said: Any) -> Stage:
    return Stage(spec(schedule=Schedule(cron="*/2 * * * *", timezone="UTC", catchup=catchup), **said))


def runs(stage: Stage) -> dict[str, RunState]:
    return {str(key): run.state for key, run in stage.bench.cluster.world.runs.items()}


def pass_minutes(stage: Stage, minutes: float) -> None:
    stage.bench.clocks.pass_s(60 * minutes)
    stage.bench.decide()


def last(stage: Stage) -> CommandOutcome:
    return list(stage.bench.cluster.world.outcomes.values())[-1]


@pytest.mark.parametrize(
    ("catchup", "started"), [(CatchUp.NONE, ()), (CatchUp.LATEST, (6,)), (CatchUp.ALL, (2, 4, 6))]
)
@pytest.mark.parametrize("by_itself", [True, False])
def test_what_came_due_is_dealt_with_by_the_catch_up_of_the_pipeline(
    catchup: CatchUp, started: tuple[int, ...], by_itself: bool
) -> None:
    stage = scheduled(catchup)
    stage.ask(freeze(until=NOW + 7.5 * MINUTE if by_itself else None))
    for _ in range(7):
        pass_minutes(stage, 1)
        assert not runs(stage)
    stage.bench.elect(3)  # a new leader reads the hold
    assert not runs(stage)

    pass_minutes(stage, 0.5)
    if not by_itself:
        assert not runs(stage)
        stage.ask(END)

    assert sorted(runs(stage)) == [f"{NAME}-20260301t120{minute}00z" for minute in started]
    assert not stage.bench.cluster.world.settings.holds


def test_run_that_is_asked_for_is_queued_with_the_reason_and_starts_after_the_hold() -> None:
    stage = Stage(spec())
    stage.ask(freeze())
    assert last(stage).message == "hold freeze: starts of 1 pipeline wait; what runs goes on"

    stage.start()

    words = "all pipelines are held by ann since 2026-03-01 12:00:00Z until 2026-03-01 12:10:00Z: month end"
    assert last(stage).message.endswith(f" is queued: {words}")
    assert runs(stage) == {"r": RunState.QUEUED}
    assert stage.run().reasons[0].why == f"{words}; it starts after that"
    assert words in stage.pipeline().reasons[0].why
    stage.bench.elect(3)
    assert runs(stage) == {"r": RunState.QUEUED}
    pass_minutes(stage, 10)
    assert runs(stage) == {"r": RunState.RUNNING}


def test_rerun_that_executes_nothing_ends_at_once_under_a_hold() -> None:
    stage = Stage(spec())
    stage.start()
    stage.end(Outcome.FAILED)
    stage.ask(freeze())

    again = Selection(scope=Scope.FAILED, reuse=RunId("r"), is_rerun=True, marks={A: TaskState.SUCCEEDED})
    stage.start("again", selection=again)

    assert runs(stage) == {"r": RunState.FAILED, "again": RunState.SUCCEEDED}
    assert last(stage).code == "ok"


def test_running_work_goes_on_with_its_child_runs() -> None:
    stage = Stage(LOAD, parent(starting(), NAME), spec(name=PipelineName("other")))
    stage.start("other", PipelineName("other"))
    stage.put(active(LOAD))  # the child cannot start before
    stage.start()
    stage.ask(freeze())
    assert [state for run, state in runs(stage).items() if run != "other"] == [RunState.RUNNING] * 2

    stage.end(Outcome.SUCCEEDED, run="other")
    child = next(run for run in runs(stage) if run not in ("r", "other"))
    stage.end(Outcome.SUCCEEDED, run=child)

    assert runs(stage)["other"] is RunState.SUCCEEDED
    assert [str(one) for one in stage.bench.term.state.attempts.slots] == ["r.after.1"]


def test_child_run_of_a_held_pipeline_starts_for_a_parent_that_runs() -> None:
    stage = Stage(LOAD, parent(starting(), NAME))
    stage.ask(freeze(of=HoldOf.PREFIX, name=CHILD))

    stage.start()

    assert list(runs(stage).values()) == [RunState.RUNNING] * 2


@pytest.mark.parametrize(
    ("of", "name", "held"),
    [
        (HoldOf.TEAM, "finance", ["ledger"]),
        (HoldOf.TAG, "daily", ["ledger", "sales"]),
        (HoldOf.PREFIX, "sa", ["sales"]),
    ],
)
def test_hold_covers_a_team_a_tag_or_a_prefix_and_others_go_on(
    of: HoldOf, name: str, held: list[str]
) -> None:
    names = ("ledger", "sales", "news")
    tags: dict[str, tuple[str, ...]] = {"ledger": ("daily",), "sales": ("eu", "daily")}
    stage = Stage(*(spec(name=PipelineName(one), tags=tags.get(one, ())) for one in names))
    stage.ask(SetOwner(pipeline=PipelineName("ledger"), owner="finance"))
    stage.ask(freeze(of=of, name=name))

    for one in names:
        stage.start(f"{one}-1", PipelineName(one))

    assert [run for run, state in runs(stage).items() if state is RunState.QUEUED] == [
        f"{one}-1" for one in held
    ]


def test_new_owner_takes_a_pipeline_out_of_a_hold() -> None:
    stage = Stage(spec())
    stage.ask(SetOwner(pipeline=NAME, owner="finance"), freeze(of=HoldOf.TEAM, name="finance"))
    stage.start()
    assert runs(stage) == {"r": RunState.QUEUED}

    stage.ask(SetOwner(pipeline=NAME, owner="sales"))

    assert runs(stage) == {"r": RunState.RUNNING}


def test_backfill_starts_no_date_while_held() -> None:
    stage = scheduled(CatchUp.NONE)
    stage.ask(freeze())
    request = BackfillRequest(first=NOW - 10 * MINUTE, last=NOW, max_parallel=2)
    stage.ask(CreateBackfill(pipeline=NAME, backfill=BackfillId("b"), request=request))
    assert not runs(stage)
    told = [reason.why for reason in stage.pipeline().reasons if reason.about == "backfill b"]
    assert told[0].endswith("its next date starts after that")

    stage.ask(END)

    assert len(runs(stage)) == 2


def test_start_by_data_waits_for_the_end_of_the_hold() -> None:
    reading = pipeline("first", "a")
    stage = stage_of(reading)
    changed(stage, "a")
    held = Hold(of=HoldOf.ALL, reason="incident", held_at=stage.now)
    stage.state.put_settings(ClusterSettings(holds={"freeze": held}), stage.instant())
    record = stage.state.catalog.pipelines[reading.name]
    assert isinstance(due.start_by_data(stage.state, record, stage.now), NoDecision)

    stage.state.put_settings(ClusterSettings(), stage.instant())

    assert isinstance(due.start_by_data(stage.state, record, stage.now), Decision)


def test_hold_without_end_raises_one_alert_after_the_time_that_was_said() -> None:
    stage = Stage(spec())
    rules = (NotifyRule(on=(AlertEvent.LATE,), to="ops"),)
    policy = Policy(alerts=AlertPolicy(targets=frozenset({"ops"}), notify=rules))
    stage.bench.elect(3, policy=policy)
    stage.ask(freeze(until=None, alert_after=60 * MINUTE))
    pass_minutes(stage, 59)
    assert not stage.bench.cluster.world.alerts

    pass_minutes(stage, 1)
    stage.bench.elect(4, policy=policy)
    pass_minutes(stage, 120)

    (alert,) = stage.bench.cluster.world.alerts.values()
    said = message(alert, cluster="c", public_url="http://s")
    assert said.subject.startswith("[c] hold: late")
    assert "hold freeze lasts long: all pipelines are held by ann since" in said.text
    assert "nimbus hold list" in said.text
    assert stage.bench.cluster.world.settings.holds["freeze"].alerted


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (freeze(of=HoldOf.TEAM, name="fiance"), "nothing_held", "no pipeline has the team fiance"),
        (freeze(of=HoldOf.TAG), "bad_hold", "needs a name"),
        (freeze(name="x"), "bad_hold", "needs a name"),
        (freeze(until=NOW), "bad_hold", "has passed: name a later end"),
        (SetHold(name="other", hold=None), "unknown_hold", "nimbus hold list"),
    ],
)
def test_hold_that_makes_no_sense_is_refused_with_what_to_do(command: SetHold, code: str, words: str) -> None:
    stage = Stage(spec())

    stage.ask(command)

    assert last(stage).code == code
    assert words in last(stage).message
    assert not stage.bench.cluster.world.settings.holds


def test_hold_is_changed_under_its_name_and_keeps_its_beginning() -> None:
    stage = Stage(spec())
    stage.ask(freeze())
    stage.bench.clocks.pass_s(60)

    stage.ask(freeze(until=NOW + 30 * MINUTE, reason="longer"))

    (hold,) = stage.bench.cluster.world.settings.holds.values()
    assert (hold.held_at, hold.until, hold.reason) == (NOW, NOW + 30 * MINUTE, "longer")


def test_activation_under_a_hold_starts_nothing() -> None:
    stage = scheduled(CatchUp.LATEST)
    stage.ask(freeze(), ActivatePipeline(pipeline=NAME))
    pass_minutes(stage, 4)

    assert not runs(stage)
    assert RunId("r") not in stage.bench.term.state.runs
