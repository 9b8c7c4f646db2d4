"""The leader is killed at each step of sending: no alert is missing, and repetitions are marked.

Leaders that break the law are detected: see the mutants at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest

from nimbus.domain import writes as w
from nimbus.domain.cluster.alerts import Alert, AlertEvent, NotifyRule, accepted, claimed
from nimbus.domain.commands import StartRun
from nimbus.domain.data.publications import Publication
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import Answer, Decision, Effect, NoDecision, SendAlert
from nimbus.engine.events import AlertTried
from nimbus.engine.rules import alerts
from nimbus.engine.state import State
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import NAME, NOW, SPEC, Bench
from tests.thorough import at_most

ORDERS, FRESH = DatasetName("orders"), timedelta(hours=2)
(TASK,) = SPEC.tasks
TELLING = replace(
    SPEC,
    notify=(NotifyRule(on=tuple(AlertEvent), to="one"), NotifyRule(on=(AlertEvent.FAILED,), to="two")),
    fresh={ORDERS: FRESH},
    tasks=(replace(TASK, publishes=(Publication(dataset=ORDERS),)),),
)
ENDS = (Outcome.FAILED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.FAILED, Outcome.SUCCEEDED)
EXPECTED = {
    *("failed.r0.one", "failed.r0.two", "recovered.r1.one", "succeeded.r1.one"),
    *("failed.r2.one", "failed.r2.two", "recovered.r4.one", "succeeded.r4.one"),
    *("late.p.orders.one", f"late.p.orders.{NOW + FRESH:%Y%m%dt%H%M%S}.one"),
}


class KilledError(BaseException):
    """The leader's process died. Not an Exception, so that the engine cannot catch it."""


class MortalBench(Bench):
    """A leader that can be killed before and after each transaction and each delivery."""

    def __init__(self, kill_at: Sequence[int]) -> None:
        self.left = sorted(kill_at, reverse=True)
        self.step = -1
        self.arrived: list[Alert] = []
        self.unmarked: list[Alert] = []
        """Alerts that are accepted, but not marked as sent yet."""
        self.doubtful = 0
        """Number of kills between an acceptance and its mark."""
        self.kills: Counter[str] = Counter()
        super().__init__()

    def __post_init__(self) -> None:
        bench = self

        class MortalStore(DictLeaderStore):
            def __init__(self, cluster: DictCluster, epoch: int) -> None:
                super().__init__(cluster, epoch)

            def _commit(self, writes: Sequence[w.Write]) -> None:
                names = "+".join(sorted({type(write).__name__ for write in writes}))
                bench.point(f"before {names}")
                super()._commit(writes)
                sent = {write.alert.id for write in writes if isinstance(write, w.PutAlert)}
                bench.unmarked = [one for one in bench.unmarked if one.id not in sent]
                bench.point(f"after {names}")

        self.store = MortalStore
        super().__post_init__()
        record = active(TELLING, schedule_position=NOW, updated_at=NOW)
        self.cluster.change(pipelines={NAME: record})
        self.epoch = 2
        self.elect(self.epoch, self.store)

    def point(self, what: str) -> None:
        """The process may die here."""
        self.step += 1
        if self.left and self.left[-1] <= self.step:
            self.left.pop()
            self.kills[what] += 1
            self.doubtful += len(self.unmarked)
            raise KilledError

    def _start(self, effect: Effect) -> None:
        if not isinstance(effect, SendAlert):
            super()._start(effect)
            return
        self.point("before a delivery")
        self.arrived.append(effect.alert)
        self.unmarked.append(effect.alert)
        self.effects.append(effect)
        self.point("after a delivery")

    def live(self) -> None:
        """Let leaders work, one after the other, until nothing is left to do."""
        while True:
            try:
                self.decide()
                tried = [effect.alert.claim for effect in self.effects if isinstance(effect, SendAlert)]
                self.effects.clear()
                if not tried:
                    return
                self.term.apply([AlertTried(claim, None) for claim in tried])
            except KilledError:
                self.effects.clear()
                self.unmarked.clear()
                self.epoch += 1
                self.elect(self.epoch, self.store)


def play(kill_at: Sequence[int]) -> MortalBench:
    bench = MortalBench(kill_at)
    bench.live()
    bench.clocks.pass_s(FRESH.total_seconds())
    bench.live()
    for number, outcome in enumerate(ENDS):
        run = RunId(f"r{number}")
        bench.submit(StartRun(pipeline=NAME, run_id=run))
        bench.live()
        attempt = AttemptId(run, TaskName("a"), 1)
        bench.claim(attempt)
        bench.end(attempt, outcome)
        bench.live()
    bench.clocks.pass_s(FRESH.total_seconds())
    bench.live()
    return bench


def check(bench: MortalBench) -> None:
    arrivals = defaultdict(list)
    for alert in bench.arrived:
        arrivals[alert.id].append(alert)
    assert arrivals.keys() == EXPECTED
    for told in arrivals.values():
        assert all(again.may_repeat for again in told[1:])
    doubles = sum(len(told) - 1 for told in arrivals.values())
    assert doubles == bench.doubtful


def test_each_alert_arrives_when_the_leader_is_killed_at_each_step_of_its_life() -> None:
    steps = play(()).step + 1
    killed: Counter[str] = Counter()

    for at in range(steps):
        bench = play((at,))
        check(bench)
        killed += bench.kills

    assert killed.total() == steps
    assert killed["after a delivery"] == killed["before a delivery"] == len(EXPECTED)


@pytest.mark.parametrize("seed", range(at_most(40)))
def test_each_alert_arrives_when_leaders_are_killed_again_and_again(seed: int) -> None:
    rng = Random(seed)
    at, points = 0, []
    for _ in range(8):
        at += rng.randint(1, 25)
        points.append(at)

    check(play(points))


def unmarked_claim(alert: Alert, epoch: int) -> Alert:
    return replace(claimed(alert, epoch), may_repeat=False)


def marked_before_it_is_sent(state: State, alert: Alert, now: datetime) -> Answer:
    if alert.claim in state.alerts.outbox.started or alert.epoch != state.epoch:
        return alerts._ended(state, "alert_sent", accepted(alert, now))
    return Decision(name="alert_try_started", effects=(SendAlert(alert),))


def claim_taken_for_ones_own(state: State, alert: Alert, now: datetime) -> Answer:
    if alert.claim in state.alerts.outbox.answers:
        return alerts._ended(state, "alert_sent", accepted(alert, now))
    if alert.claim in state.alerts.outbox.started:
        return NoDecision()
    return Decision(name="alert_try_started", effects=(SendAlert(alert),))


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("claimed", unmarked_claim),
        ("_send", marked_before_it_is_sent),
        ("_send", claim_taken_for_ones_own),
    ],
)
def test_leader_that_breaks_the_law_is_found(
    name: str, mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = play(()).step + 1
    monkeypatch.setattr(alerts, name, mutant)

    with pytest.raises(AssertionError):
        for at in range(steps):
            check(play((at,)))
