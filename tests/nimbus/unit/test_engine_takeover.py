"""A takeover in parts: decisions of a new leader before it has read everything, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from leader import FencingToken, Leadership, Participant
from nimbus.domain import writes as w
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import RunCause
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import Refusal
from nimbus.engine.events import RunBuilt
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.loop import Engine, Steps
from nimbus.engine.policy import Policy
from nimbus.engine.state import Built
from nimbus.engine.work_queue import Key
from nimbus.ports import LoadedPart
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.dict_cluster import DictLeaderStore
from tests.nimbus.engine_bench import DIGEST, NAME, NOW, START, WORKER, Bench
from tests.nimbus.loading import recover

FIRST, SECOND = RunId("p-1"), RunId("p-2")
TASK = TaskName("a")


class SlowStore(DictLeaderStore):
    """Reads one run at a time."""

    runs_at_once = 1


def attempt(run: RunId) -> AttemptId:
    return AttemptId(run, TASK, 1)


@pytest.fixture
def bench() -> Bench:
    """Two runs, each with an attempt on the only worker, and a third one that waits for a slot."""
    made = Bench()
    for number in (1, 2, 3):
        made.submit(replace(START, run_id=RunId(f"p-{number}")))
    made.decide()
    made.elect(2, SlowStore)
    made.term.recover()
    made.cluster.commits.clear()
    return made


def read_on(term: LeaderTerm, parts: int) -> None:
    for _ in range(parts):
        term.read_on()
        term.decide()


def test_takeover_takes_in_an_end_when_other_runs_are_not_read_yet(bench: Bench) -> None:
    bench.end(attempt(FIRST), Outcome.SUCCEEDED)

    read_on(bench.term, parts=2)  # registrations, and the first run

    assert not bench.term.state.is_loaded
    assert bench.run(FIRST).state.is_final


def test_takeover_opens_no_attempt_when_it_has_not_read_all(bench: Bench) -> None:
    bench.end(attempt(FIRST), Outcome.FAILED)
    bench.submit(replace(START, run_id=RunId("p-4")))

    read_on(bench.term, parts=4)  # all runs, but neither catalog nor commands
    written = [type(write) for commit in bench.cluster.commits for write in commit]

    assert written == [w.PutTerm, w.CreateTerm, w.PutRun, w.Unassign]
    read_on(bench.term, parts=1)
    assert bench.term.state.is_loaded
    assert w.CreateAttempt in [type(write) for commit in bench.cluster.commits for write in commit]


def test_news_about_a_run_that_is_read_are_heard_when_others_are_not(bench: Bench) -> None:
    read_on(bench.term, parts=2)
    bench.end(attempt(FIRST), Outcome.SUCCEEDED)

    bench.decide()

    assert bench.run(FIRST).state.is_final


def test_a_built_run_is_kept_when_it_is_told_while_everything_is_read_again(bench: Bench) -> None:
    key = Key("command", bench.submit(replace(START, run_id=RunId("p-4"))))
    bench.term.state.builds.under_way.add(key)
    bench.term.recover()

    draft = Draft(
        id=RunId("p-4"),
        pipeline=NAME,
        release=DIGEST,
        parameters={},
        logical_date=NOW,
        cause=RunCause.MANUAL,
        asked_at=NOW,
    )
    built = Built(draft, Refusal("bad_template", "no such name"))
    bench.term.apply((RunBuilt(key, built),))
    for _ in range(5):
        bench.term.read_on()

    assert bench.term.state.is_loaded
    assert (bench.term.state.builds.results, bench.term.state.builds.under_way) == ({key: built}, set())


def test_silence_counts_on_when_reading_everything_again_is_broken_off(bench: Bench) -> None:
    bench.claim(attempt(SECOND), has_heartbeat=False)
    recover(bench.term)
    since_s = bench.term.state.attempts.silent[attempt(SECOND)]

    bench.clocks.pass_s(5)
    bench.term.recover()
    read_on(bench.term, parts=2)  # not as far as the second run
    recover(bench.term)

    assert bench.term.state.attempts.silent == {attempt(SECOND): since_s}


def test_refusals_are_those_of_all_runs_when_an_end_was_taken_in_before_all_were_read(bench: Bench) -> None:
    bench.end(attempt(FIRST), Outcome.REFUSED)
    bench.end(attempt(SECOND), Outcome.REFUSED)

    read_on(bench.term, parts=5)

    assert bench.term.state.attempts.workers.refusals[WORKER.id].count == 2
    recover(bench.term)
    assert bench.term.state.attempts.workers.refusals[WORKER.id].count == 2


def test_takeover_says_once_how_much_it_adopted(bench: Bench) -> None:
    bench.claim(attempt(FIRST))

    with capture_logs() as lines:
        recover(bench.term)

    said = [line for line in lines if line["log_level"] == "info"]
    assert said == [
        {"event": "attempts_adopted", "log_level": "info", "epoch": 2, "adopted": 2, "claimed": 1}
    ]


class CountingStore(SlowStore):
    """Counts the parts that were read."""

    parts = 0

    def load(self) -> Iterator[LoadedPart]:
        for part in super().load():
            CountingStore.parts += 1
            yield part


def engine_of(bench: Bench) -> tuple[Engine, Steps[None]]:
    engine = Engine(
        store_for=lambda leadership: CountingStore(bench.cluster, leadership.epoch),
        still_leads=lambda: True,
        start_effect=bench.effects.append,
        policy=Policy(),
        clock=bench.clocks,
        metrics=EngineMetrics(CollectorRegistry()),
        on_status=lambda: None,
    )
    steps = engine.steps()
    next(steps)
    return engine, steps


def test_a_revoked_leader_reads_no_further(bench: Bench) -> None:
    engine, steps = engine_of(bench)
    token = FencingToken(path="/epoch", version=2, epoch=2)
    ours = Leadership(2, token, Participant(id="s", host="h", port=0, boot_id="b"))
    CountingStore.parts = 0
    engine.elected(ours)
    steps.send(engine.collect(0.0))

    engine.revoked(ours, "by the test")
    wait_s = steps.send(engine.collect(0.0))

    assert (CountingStore.parts, wait_s) == (1, None)
    assert engine.status.recovered_at is None
