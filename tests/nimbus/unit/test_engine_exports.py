"""Traces and lineage on their threads: times of sending, repetitions, and effects of a dead collector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.engine import sending
from nimbus.engine.sending import RunExports
from nimbus.ports import TelemetryNotSentError
from nimbus.telemetry.engine import ExportMetrics

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
GIVE_UP_AFTER = timedelta(hours=1)
LIVE = Run(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=ReleaseDigest("a" * 64),
    parameters={},
    logical_date=NOW,
    created_at=NOW,
    started_at=NOW,
    cause=RunCause.MANUAL,
    priority=Priority.LOW,
    failure_strategy=FailureStrategy.END,
)
FINAL = replace(LIVE, state=RunState.SUCCEEDED, finished_at=NOW)


class Sink:
    """See `nimbus.ports.RunSink`. Records its calls, and can refuse or hang."""

    def __init__(self, *, follows: bool) -> None:
        self.follows = follows
        self.sent: list[tuple[Run | None, Run]] = []
        self.asked = self.tried = 0
        self.refuses: set[RunId] = set()
        self.gate = threading.Event()
        self.gate.set()

    def send(self, before: Run | None, run: Run) -> int:
        self.asked += 1
        self.gate.wait(60)
        self.tried += 1
        if run.id in self.refuses:
            raise TelemetryNotSentError("not now")
        self.sent.append((before, run))
        return 1

    def close(self) -> None:
        self.gate.set()


class Bench:
    def __init__(self) -> None:
        self.time = NOW
        self.leads, self.asked = True, 0
        self.registry = CollectorRegistry()
        self.traces, self.lineage = Sink(follows=False), Sink(follows=True)
        self.done: list[str] = []
        self.exports = RunExports(
            {"traces": self.traces, "lineage": self.lineage},
            leads=self._leads,
            clock=self,
            give_up_after=GIVE_UP_AFTER,
            metrics=ExportMetrics(self.registry),
        )

    def _leads(self) -> bool:
        self.asked += 1
        return self.leads

    def now(self) -> datetime:
        return self.time

    def elapsed_s(self) -> float:
        return 0.0

    def finish(self, run: Run) -> None:
        self.exports.finish(run, lambda: self.done.append(run.id))

    def metric(self, name: str, kind: str) -> float | None:
        return self.registry.get_sample_value(f"nimbus_telemetry_{name}", {"kind": kind})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(sending, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sending, "LONGEST_PAUSE_S", 0.002)
    made = Bench()
    yield made
    made.exports.close()


def test_what_follows_is_told_of_each_change_and_the_other_of_the_end(
    bench: Bench, eventually: Eventually
) -> None:
    bench.exports.follow(1, LIVE)
    eventually(lambda: bench.lineage.sent == [(None, LIVE)])
    bench.exports.follow(1, FINAL)
    bench.finish(FINAL)

    eventually(lambda: bench.done == ["r"])
    assert bench.lineage.sent[1] == (LIVE, FINAL)
    assert bench.traces.sent == [(None, FINAL)]
    assert bench.metric("sent_total", "traces") == 1
    assert bench.metric("waiting_runs", "lineage") == 0
    for export in bench.exports._exports:
        assert not (export._latest or export._sent or export._done), "a finished run is kept in memory"


def test_a_run_counts_as_waiting_while_it_is_tried(bench: Bench, eventually: Eventually) -> None:
    bench.lineage.gate.clear()
    bench.exports.follow(1, LIVE)
    eventually(lambda: bench.lineage.asked == 1)
    assert bench.metric("waiting_runs", "lineage") == 1

    bench.exports.follow(1, FINAL)
    assert bench.metric("waiting_runs", "lineage") == 1, "one run, though it is queued again"
    bench.lineage.gate.set()
    eventually(lambda: bench.metric("waiting_runs", "lineage") == 0)


def test_an_overdue_run_is_tried_though_another_one_is_never_accepted(
    bench: Bench, eventually: Eventually
) -> None:
    bench.traces.refuses.add(LIVE.id)
    bench.finish(FINAL)
    eventually(lambda: bench.traces.tried > 2)
    bench.time += 2 * GIVE_UP_AFTER
    other = replace(FINAL, id=RunId("other"))
    bench.exports.finish(other, lambda: None)

    eventually(lambda: other in [run for _, run in bench.traces.sent])


def test_versions_that_come_while_a_sink_is_slow_are_sent_as_one(
    bench: Bench, eventually: Eventually
) -> None:
    bench.lineage.gate.clear()
    bench.exports.follow(1, replace(LIVE, id=RunId("other")))
    for number in range(5):
        bench.exports.follow(1, replace(LIVE, note=str(number)))
    bench.lineage.gate.set()

    eventually(lambda: len(bench.lineage.sent) == 2)
    assert bench.lineage.sent[1] == (None, replace(LIVE, note="4"))


def test_a_run_is_done_only_when_both_have_accepted_it(bench: Bench, eventually: Eventually) -> None:
    bench.lineage.refuses.add(FINAL.id)
    bench.finish(FINAL)
    eventually(lambda: bench.traces.sent and bench.lineage.tried > 2)
    assert bench.done == []

    bench.lineage.refuses.clear()

    eventually(lambda: bench.done == ["r"])
    failed = bench.metric("failed_tries_total", "lineage")
    assert failed is not None
    assert failed > 2


def test_a_run_that_is_never_accepted_holds_up_no_other_and_is_given_up(
    bench: Bench, eventually: Eventually
) -> None:
    bench.lineage.refuses.add(FINAL.id)
    bench.finish(FINAL)
    bench.finish(replace(FINAL, id=RunId("other"), finished_at=NOW + 2 * GIVE_UP_AFTER))
    eventually(lambda: bench.done == ["other"])

    bench.time = NOW + GIVE_UP_AFTER + timedelta(seconds=1)

    eventually(lambda: bench.done == ["other", "r"])
    assert bench.metric("dropped_runs_total", "lineage") == 1
    assert bench.metric("dropped_runs_total", "traces") is None


def test_a_run_that_is_never_accepted_is_given_up_though_others_are_accepted_between_its_tries(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.lineage.refuses.add(FINAL.id)
    send = bench.lineage.send

    def send_another_next(before: Run | None, run: Run) -> int:
        if run.id == FINAL.id:
            bench.exports.follow(0, replace(LIVE, id=RunId("other")))
        return send(before, run)

    monkeypatch.setattr(bench.lineage, "send", send_another_next)
    bench.time = NOW + 2 * GIVE_UP_AFTER
    bench.finish(FINAL)

    eventually(lambda: bench.done == ["r"])
    assert bench.metric("dropped_runs_total", "lineage") == 1


def test_a_run_that_ended_long_ago_is_tried_once_at_least(bench: Bench, eventually: Eventually) -> None:
    bench.time = NOW + 2 * GIVE_UP_AFTER
    bench.finish(FINAL)

    eventually(lambda: bench.done == ["r"])
    assert bench.lineage.sent == bench.traces.sent == [(None, FINAL)]


def test_who_does_not_lead_sends_nothing_and_finishes_nothing(bench: Bench, eventually: Eventually) -> None:
    bench.leads = False
    bench.exports.follow(1, LIVE)
    bench.finish(FINAL)

    eventually(lambda: bench.asked >= 2)
    assert bench.lineage.sent == bench.traces.sent == bench.done == []


def test_a_new_term_sends_all_of_a_live_run_again(bench: Bench, eventually: Eventually) -> None:
    bench.exports.follow(1, LIVE)
    eventually(lambda: len(bench.lineage.sent) == 1)
    bench.exports.follow(1, LIVE)
    eventually(lambda: len(bench.lineage.sent) == 2)
    bench.exports.follow(2, LIVE)

    eventually(lambda: len(bench.lineage.sent) == 3)
    assert [before for before, _ in bench.lineage.sent] == [None, LIVE, None]


def test_closing_ends_the_pause_of_a_collector_that_is_dead(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "FIRST_PAUSE_S", 1000.0)
    monkeypatch.setattr(sending, "LONGEST_PAUSE_S", 1000.0)
    bench.traces.refuses.add(FINAL.id)
    bench.finish(FINAL)
    eventually(lambda: bench.traces.tried == 1)

    bench.exports.close()

    eventually(lambda: not any("nimbus-export-traces" in thread.name for thread in threading.enumerate()))


def test_without_sinks_a_run_is_done_at_once() -> None:
    made = Bench()
    made.exports.close()
    nothing = RunExports(
        {},
        leads=lambda: True,
        clock=made,
        give_up_after=GIVE_UP_AFTER,
        metrics=ExportMetrics(CollectorRegistry()),
    )

    nothing.finish(FINAL, lambda: made.done.append("r"))

    assert made.done == ["r"]
