"""Alerts: raised with their cause, sent once to each target, and repeated only if the result is unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nimbus.domain.cluster.alerts import (
    Alert,
    AlertEvent,
    AlertState,
    DeliveryFailure,
    NotifyRule,
    accepted,
    claimed,
    message,
)
from nimbus.domain.commands import CreateBackfill, RemovePipeline, StartRun, StopRun
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.backfill import BackfillRequest, OnFailure
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import CatchUp, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.waits import PipelineWait
from nimbus.engine.decision import BuildRun, Effect, Refusal, SendAlert
from nimbus.engine.events import AlertTried, RunBuilt
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.policy import AlertPolicy, Policy
from nimbus.engine.rules.raised_alerts import MAX_WAITING
from nimbus.engine.state import Built
from nimbus.engine.state.alerts import Outbox
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictLeaderStore
from tests.nimbus.engine_bench import NAME, NOW, SPEC, Bench
from tests.nimbus.unit.test_engine_backfills import ask, end_one

ALL = tuple(AlertEvent)
RULE = NotifyRule(on=ALL, to="oncall")
TOLD = replace(SPEC, notify=(RULE,))


class AlertBench(Bench):
    """A cluster of schema 2 whose pipeline sends all alerts. Messages are kept until they are answered."""

    def __init__(self, spec: PipelineSpec = TOLD, policy: Policy | None = None) -> None:
        self._spec, self._policy = spec, policy
        super().__init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        record = active(self._spec, schedule_position=NOW, updated_at=NOW)
        self.cluster.change(pipelines={NAME: record})
        self.elect(2)

    def elect(
        self,
        epoch: int,
        store: type[DictLeaderStore] = DictLeaderStore,
        policy: Policy | None = None,
    ) -> LeaderTerm:
        return super().elect(epoch, store, policy or self._policy)

    def alerts(self) -> dict[str, Alert]:
        return self.cluster.world.alerts

    def to_send(self) -> list[Alert]:
        return [effect.alert for effect in self.effects if isinstance(effect, SendAlert)]

    def answer(self, failure: DeliveryFailure | None = None) -> list[Alert]:
        """Let the targets answer all messages so far."""
        sent = self.to_send()
        self.effects.clear()
        self.term.apply(AlertTried(alert.claim, failure) for alert in sent)
        self.decide()
        return sent

    def play(self, number: int, outcome: Outcome) -> None:
        """A run from its start to the end of its one task."""
        run = RunId(f"p-{number}")
        self.submit(StartRun(pipeline=NAME, run_id=run))
        self.decide()
        attempt = AttemptId(run, TaskName("a"), 1)
        self.claim(attempt)
        self.end(attempt, outcome)
        self.decide()


def test_alert_is_written_with_the_end_of_its_run() -> None:
    bench = AlertBench()

    bench.play(1, Outcome.FAILED)

    (commit,) = (c for c in bench.cluster.commits if any(type(w).__name__ == "CreateAlert" for w in c))
    assert {type(write).__name__ for write in commit} >= {"PutRun", "CreateAlert", "PutHealth"}
    (alert,) = bench.alerts().values()
    assert (alert.id, alert.event, alert.run) == ("failed.p-1.oncall", AlertEvent.FAILED, "p-1")
    assert alert.about == "run p-1 failed: a"


def test_alert_has_the_runbook_of_its_pipeline() -> None:
    bench = AlertBench(replace(TOLD, runbook="Call finance."))

    bench.play(1, Outcome.FAILED)

    (alert,) = bench.alerts().values()
    text = message(alert, cluster="c", public_url="https://c.example.com")
    assert "runbook: Call finance.\n" in text.text
    assert text.fields["runbook"] == "Call finance."


def test_alert_is_sent_and_kept_for_an_hour_when_its_target_accepts_it() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)

    (sent,) = bench.answer()

    assert not sent.may_repeat
    assert bench.alerts()[sent.id].state is AlertState.SENT
    bench.clocks.pass_s(3599)
    bench.decide()
    assert bench.alerts()
    bench.clocks.pass_s(1)
    bench.decide()
    assert not bench.alerts()
    assert not bench.to_send()


def test_failures_are_told_once_until_a_run_succeeds() -> None:
    bench = AlertBench()

    for number, outcome in enumerate((Outcome.FAILED, Outcome.FAILED, Outcome.TIMED_OUT)):
        bench.play(number, outcome)
    assert [alert.event for alert in bench.alerts().values()] == [AlertEvent.FAILED]

    bench.play(4, Outcome.SUCCEEDED)
    bench.play(5, Outcome.SUCCEEDED)
    bench.play(6, Outcome.TIMED_OUT)
    assert sorted((alert.event.value, alert.run) for alert in bench.alerts().values()) == [
        ("failed", "p-0"),
        ("recovered", "p-4"),
        ("succeeded", "p-4"),
        ("succeeded", "p-5"),
        ("timed_out", "p-6"),
    ]


def test_episode_outlives_its_leader() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    bench.elect(3)
    bench.play(2, Outcome.FAILED)
    bench.elect(4)
    bench.play(3, Outcome.SUCCEEDED)

    events = sorted(alert.event.value for alert in bench.alerts().values())
    assert events == ["failed", "recovered", "succeeded"]


def test_stopped_run_is_told_to_nobody() -> None:
    bench = AlertBench()
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1")))
    bench.decide()
    bench.submit(StopRun(run_id=RunId("p-1"), reason="no need"))
    bench.decide()

    assert not bench.alerts()


def test_run_that_reaches_its_timeout_is_told_as_timed_out() -> None:
    bench = AlertBench(replace(TOLD, timeout=timedelta(minutes=5)))
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1")))
    bench.decide()
    bench.clocks.pass_s(301)
    bench.decide()
    bench.decide()

    assert [alert.event for alert in bench.alerts().values()] == [AlertEvent.TIMED_OUT]


def test_lost_worker_is_told_once_for_a_run() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.LOST)
    bench.clocks.pass_s(60)
    bench.decide()
    bench.claim(AttemptId(RunId("p-1"), TaskName("a"), 2))
    bench.end(AttemptId(RunId("p-1"), TaskName("a"), 2), Outcome.LOST)
    bench.decide()

    (alert,) = bench.alerts().values()
    assert alert.id == "worker_lost.p-1.w1.oncall"


def test_skipped_fires_are_told_once_until_one_starts_a_run() -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.NONE)
    bench = AlertBench(replace(TOLD, schedule=hourly))

    for _ in range(3):
        bench.clocks.pass_s(3600 if bench.cluster.world.alerts else 5400)
        bench.decide()
    assert [alert.event for alert in bench.alerts().values()] == [AlertEvent.SKIPPED_FIRE]
    assert "catchup is none" in next(iter(bench.alerts().values())).about


def test_default_of_the_cluster_holds_for_pipelines_that_say_nothing() -> None:
    policy = Policy(alerts=AlertPolicy(notify=(NotifyRule(on=(AlertEvent.FAILED,), to="all"),)))
    silent = AlertBench(replace(SPEC, notify=()), policy)
    usual = AlertBench(SPEC, policy)

    silent.play(1, Outcome.FAILED)
    usual.play(1, Outcome.FAILED)

    assert not silent.alerts()
    assert list(usual.alerts()) == ["failed.p-1.all"]


def test_refused_alert_is_tried_again_later_and_given_up_after_a_day() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    tries = 0
    while bench.alerts()["failed.p-1.oncall"].state is not AlertState.NOT_DELIVERED:
        assert len(bench.answer(DeliveryFailure("no route"))) == 1
        tries += 1
        bench.clocks.pass_s(600)
        bench.decide()

    alert = bench.alerts()["failed.p-1.oncall"]
    assert 24 * 6 - 5 < tries < 24 * 6 + 5
    assert (alert.error, alert.tries) == ("no route", tries)
    assert bench.clocks.wall - NOW >= timedelta(hours=23)
    assert not bench.to_send()


def test_target_gets_one_alert_at_a_time_and_others_do_not_wait_for_it() -> None:
    both = (RULE, NotifyRule(on=ALL, to="second"))
    bench = AlertBench(replace(SPEC, notify=both))

    for number in range(3):
        bench.play(number, Outcome.SUCCEEDED)
    assert sorted(alert.target for alert in bench.to_send()) == ["oncall", "second"]

    oncall, second = sorted(bench.to_send(), key=lambda alert: alert.target)
    bench.effects.clear()
    bench.term.apply([AlertTried(second.claim, None)])
    bench.decide()
    assert [alert.target for alert in bench.to_send()] == [
        "second"
    ]  # `oncall` hangs, and only delays its own alerts
    bench.term.apply([AlertTried(oncall.claim, None)])
    bench.decide()
    assert sorted(alert.target for alert in bench.to_send()) == ["oncall", "second"]


def test_alert_that_a_dead_leader_was_sending_is_sent_again_and_says_so() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    (first,) = bench.to_send()
    bench.effects.clear()

    bench.elect(3)
    bench.decide()
    (again,) = bench.to_send()
    assert (again.id, again.may_repeat, again.tries) == (first.id, True, 2)

    bench.term.apply([AlertTried(first.claim, None)])  # from the earlier term in the same process
    bench.decide()
    assert bench.alerts()[first.id].state is AlertState.SENDING
    bench.answer()
    assert bench.alerts()[first.id].state is AlertState.SENT


def test_alert_that_nobody_had_claimed_is_sent_without_the_mark_after_a_failover() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    waiting = replace(bench.alerts()["failed.p-1.oncall"], state=AlertState.WAITING, tries=0, epoch=0)
    bench.cluster.change(alerts={waiting.id: waiting})
    bench.effects.clear()

    bench.elect(3)
    bench.decide()

    assert [alert.may_repeat for alert in bench.to_send()] == [False]


def test_alert_under_way_is_not_sent_again_when_everything_is_read_anew() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    (sent,) = bench.to_send()

    bench.term.recover()
    bench.term.apply([AlertTried(sent.claim, None)])  # before the outbox is read
    bench.decide()

    assert len(bench.to_send()) == 1
    assert bench.alerts()[sent.id].state is AlertState.SENT


def test_alerts_beyond_the_most_that_wait_are_counted_in_one() -> None:
    bench = AlertBench()
    for number in range(MAX_WAITING + 5):
        bench.play(number, Outcome.SUCCEEDED)

    waiting = [alert for alert in bench.alerts().values() if alert.state is AlertState.WAITING]
    assert len(waiting) == MAX_WAITING
    assert sum(1 + alert.more for alert in bench.alerts().values()) == MAX_WAITING + 5


def test_health_leaves_with_its_pipeline() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    bench.answer()
    bench.submit(RemovePipeline(pipeline=NAME))
    bench.decide()

    assert not bench.cluster.world.health


@pytest.mark.parametrize("late", [timedelta(minutes=30), timedelta(days=8)])
def test_alert_of_a_run_that_has_the_id_of_an_earlier_one_is_raised_when_that_was_long_ago(
    late: timedelta,
) -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    old = replace(
        bench.alerts()["failed.p-1.oncall"],
        state=AlertState.NOT_DELIVERED,
        ended_at=NOW - late,
        raised_at=datetime(2026, 1, 1, tzinfo=NOW.tzinfo),
    )
    bench = AlertBench()
    bench.cluster.change(alerts={old.id: old})
    bench.elect(3)
    bench.play(1, Outcome.FAILED)

    raised = bench.alerts()[old.id].raised_at == NOW
    assert raised == (late > timedelta(hours=1))


@pytest.mark.parametrize("doubtful", [False, True])
def test_alert_is_marked_when_its_target_gave_no_answer_before(doubtful: bool) -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    bench.answer(DeliveryFailure("ReadTimeout", doubtful))
    bench.clocks.pass_s(10)
    bench.decide()

    assert [alert.may_repeat for alert in bench.to_send()] == [doubtful]


def test_alert_that_somebody_deleted_is_not_put_again() -> None:
    bench = AlertBench()
    bench.play(1, Outcome.FAILED)
    bench.cluster.change(alerts={}, health={})
    bench.answer()
    assert not bench.alerts()

    bench.play(2, Outcome.FAILED)
    assert list(bench.alerts()) == ["failed.p-2.oncall"]


def test_answer_is_kept_while_its_mark_may_not_have_been_written() -> None:
    """The state that contains the mark is dropped when the store refuses the transaction."""
    waiting = Alert(
        id="failed.r.oncall",
        event=AlertEvent.FAILED,
        target="oncall",
        pipeline=PipelineName("p"),
        run=RunId("r"),
        about="run r failed",
        raised_at=NOW,
    )
    sending = claimed(waiting, 3)
    given_up, anew = Outbox(), Outbox()
    given_up.put(sending)
    given_up.started.add(sending.claim)
    given_up.answer(sending.claim, None)
    given_up.put(accepted(sending, NOW))

    anew.keep_from(given_up)
    anew.put(sending)

    assert sending.claim in anew.answers
    anew.put(claimed(sending, 3))
    assert not anew.answers


HOUR = timedelta(hours=1)


@pytest.mark.parametrize("kind", [TaskKind.APPROVAL, TaskKind.WAIT])
def test_wait_that_times_out_is_told_as_timed_out(kind: TaskKind) -> None:
    waits = (PipelineWait(pipeline=NAME),) if kind is TaskKind.WAIT else ()
    args = () if waits else ("go on?",)
    task = TaskSpec(name=TaskName("a"), kind=kind, script="", args=args, waits_for=waits, timeout=HOUR)
    bench = AlertBench(replace(TOLD, tasks=(task,), notify=(NotifyRule(on=ENDINGS, to="oncall"),)))
    interval = DataInterval(start=NOW - HOUR, end=NOW)
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1"), data_interval=interval))
    bench.decide()
    bench.clocks.pass_s(3600)
    bench.elect(3)
    bench.decide()

    assert list(bench.alerts()) == ["timed_out.p-1.oncall"]


ENDINGS = (AlertEvent.FAILED, AlertEvent.TIMED_OUT, AlertEvent.RECOVERED)


def test_backfill_of_mixed_outcomes_is_one_episode_beside_that_of_its_pipeline() -> None:
    policy = Policy(alerts=AlertPolicy(targets=frozenset({"oncall"})))
    bench = AlertBench(replace(TOLD, notify=(NotifyRule(on=ENDINGS, to="oncall"),)), policy)
    dates = BackfillRequest(
        first=NOW - 5 * HOUR, last=NOW, every=HOUR, max_parallel=1, on_failure=OnFailure.CONTINUE
    )
    assert ask(bench, CreateBackfill(pipeline=NAME, backfill=BackfillId("b"), request=dates)) == "ok"
    for outcome in (
        Outcome.SUCCEEDED,
        Outcome.FAILED,
        Outcome.SUCCEEDED,
        Outcome.TIMED_OUT,
        Outcome.SUCCEEDED,
    ):
        end_one(bench, outcome)

    (alert,) = bench.alerts().values()
    assert (alert.event, alert.run) == (AlertEvent.FAILED, "b-20260301t080000z")
    assert bench.cluster.world.health == {}
    bench.play(1, Outcome.FAILED)
    assert len(bench.alerts()) == 2, "the episode of the pipeline is another one"


def test_date_whose_run_cannot_be_made_hides_no_failure_of_its_backfill() -> None:
    class FirstDateRefused(AlertBench):
        def _start(self, effect: Effect) -> None:
            if isinstance(effect, BuildRun) and effect.draft.logical_date == NOW - HOUR:
                self.term.apply((RunBuilt(effect.key, Built(effect.draft, Refusal("bad", "no"))),))
            else:
                super()._start(effect)

    policy = Policy(alerts=AlertPolicy(targets=frozenset({"oncall"})))
    bench = FirstDateRefused(replace(TOLD, notify=(NotifyRule(on=ENDINGS, to="oncall"),)), policy)
    dates = BackfillRequest(first=NOW - HOUR, last=NOW, every=HOUR, on_failure=OnFailure.CONTINUE)
    ask(bench, CreateBackfill(pipeline=NAME, backfill=BackfillId("b"), request=dates))

    end_one(bench, Outcome.FAILED)

    assert list(bench.alerts()) == ["failed.b-20260301t120000z.oncall"]
    assert bench.cluster.world.backfills[BackfillId("b")].failed == 2


def test_fan_out_of_mixed_outcomes_is_one_episode_of_its_parent() -> None:
    leaf = replace(TOLD, name=PipelineName("leaf"), notify=(NotifyRule(on=ENDINGS, to="oncall"),))
    children = ChildSpec(pipeline=leaf.name, for_each={"n": (1, 2, 3, 4)}, max_parallel=1)
    fan = TaskSpec(name=TaskName("a"), kind=TaskKind.PIPELINE, script="", children=children)
    bench = AlertBench(replace(TOLD, tasks=(fan,), notify=(NotifyRule(on=ENDINGS, to="oncall"),)))
    record = active(leaf, schedule_position=NOW, updated_at=NOW)
    bench.cluster.change(pipelines={**bench.cluster.world.pipelines, leaf.name: record})
    bench.elect(3)
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1")))
    bench.decide()
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED, Outcome.FAILED):
        end_one(bench, outcome)

    assert list(bench.alerts()) == ["failed.p-1.oncall"]
