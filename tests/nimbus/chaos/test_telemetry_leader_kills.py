"""Traces and lineage while leaders are killed, with real schedulers and tasks: complete, with one id.

The collector is an HTTP server that reads OTLP with the official messages. It refuses everything while the
second leader is alive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs.traces import attempt_span_id, attempt_uuid, run_span_id, run_uuid, trace_id
from nimbus.localstack.daemons import ROOT, StackTuning
from nimbus.localstack.stack import LocalStack
from tests.nimbus.chaos.cluster import NAME, Cluster, number_of
from tests.nimbus.collectors import Collector, collector
from tests.thorough import thorough

Eventually = Callable[..., None]
LONG = timedelta(seconds=30)
RUNS = ("r0", "r1", "r2")
TERMINAL = {"COMPLETE", "FAIL", "ABORT"}

pytestmark = [pytest.mark.chaos, thorough, pytest.mark.timeout(600)]


def test_all_is_told_under_the_same_ids_though_leaders_are_killed(
    tmp_path: Path, eventually: Eventually
) -> None:
    with collector() as server:
        telemetry = {
            "traces": {"endpoint": server.traces_url, "timeout": "2s"},
            "lineage": {"url": server.lineage_url, "namespace": "chaos"},
        }
        tuning = StackTuning(slots=3, attempt_patience=timedelta(seconds=2), telemetry=telemetry)
        with LocalStack(tmp_path, 2, tuning=tuning) as stack, httpx.Client(timeout=10) as http:
            chaos = Cluster(stack, http)
            chaos.whole()
            chaos.publish()
            killed = lead_to_death(chaos, server, "r0", eventually)
            server.status = 503
            chaos.start_scheduler(killed)
            chaos.start_run("r1")
            assert chaos.finished("r1", 240)["state"] == "succeeded"
            assert server.refused, "it was held up by nothing, since nothing was sent"
            killed = kill_leader(chaos)
            server.status = 200
            chaos.start_scheduler(killed)
            chaos.start_run("r2")
            for run in RUNS:
                assert chaos.finished(run, 240)["state"] == "succeeded"
            session = ZooKeeperSession(ZooKeeperConfig(hosts=stack.addresses.zookeeper, session_timeout=LONG))
            session.start(LONG)
            cluster = TreeAttemptBoard(calls_on(session), ROOT).cluster()
            session.close(LONG)
            attempts = [attempt for run in RUNS for attempt in attempts_of(chaos.run(run))]
            assert len(attempts) >= 6 * len(RUNS)
            wanted = {attempt_span_id(cluster, one) for one in attempts}
            wanted |= {run_span_id(cluster, RunId(run)) for run in RUNS}
            ids = {attempt_uuid(cluster, one) for one in attempts} | {
                run_uuid(cluster, RunId(run)) for run in RUNS
            }

            eventually(lambda: {span.span_id.hex() for span in server.spans()} >= wanted, 120, "all spans")
            eventually(lambda: ended(server) >= ids, 120, "the ends of all runs in lineage")
    check_spans(server, wanted, {trace_id(cluster, RunId(run)) for run in RUNS})
    check_events(server, ids, {attempt_uuid(cluster, one) for one in attempts if next_of(one) in attempts})


def next_of(attempt: AttemptId) -> AttemptId:
    """The next attempt, if there is one."""
    return AttemptId(attempt.run, attempt.task, attempt.number + 1)


def lead_to_death(chaos: Cluster, server: Collector, run: str, eventually: Eventually) -> int:
    """Kill the leader when a run is running and the collector knows of it."""
    chaos.start_run(run)
    eventually(lambda: len(server.events()) >= 2, 120, "a START before the end")
    assert not TERMINAL & {event["eventType"] for event in server.events() if event["job"]["name"] == NAME}
    return kill_leader(chaos)


def kill_leader(chaos: Cluster) -> int:
    leader = chaos.leader()
    number = number_of(leader)
    chaos.kill_scheduler(number)
    chaos.leader(above=leader["epoch"])
    return number


def attempts_of(run: dict[str, Any]) -> list[AttemptId]:
    return [
        AttemptId(RunId(run["id"]), TaskName(task["name"]), attempt["number"])
        for task in run["tasks"]
        for attempt in task["attempts"]
    ]


def ended(server: Collector) -> set[str]:
    return {event["run"]["runId"] for event in server.events() if event["eventType"] in TERMINAL}


def check_spans(server: Collector, wanted: set[str], traces: set[str]) -> None:
    copies = defaultdict(set)
    for span in server.spans():
        copies[span.span_id.hex()].add(span.SerializeToString(deterministic=True))
    assert copies.keys() == wanted
    assert all(len(found) == 1 for found in copies.values()), "a repeated span differs"
    assert {span.trace_id.hex() for span in server.spans()} == traces
    orphans = [
        span.name
        for span in server.spans()
        if span.parent_span_id and span.parent_span_id.hex() not in wanted
    ]
    assert orphans == []


def check_events(server: Collector, ids: set[str], retried: set[str]) -> None:
    """`retried`: attempts with a later attempt. Their START may differ, see docs/observability.md."""
    told = defaultdict(list)
    for event in server.events():
        told[event["run"]["runId"]].append(event)
    assert told.keys() == ids
    for run_id, found in told.items():
        kinds = [event["eventType"] for event in found]
        assert kinds[0] == "START", (run_id, kinds)
        assert len({kind for kind in kinds if kind != "START"}) == 1, (run_id, kinds)
        assert len({event["job"]["name"] for event in found}) == 1
        for kind in set(kinds):
            repeats = [event for event in found if event["eventType"] == kind]
            if kind == "START" and run_id in retried:
                repeats = [event | {"eventTime": ""} for event in repeats]
            assert all(one == repeats[0] for one in repeats), ("a repeated event differs", repeats)
