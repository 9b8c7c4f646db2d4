"""Traces and lineage to real servers over HTTP, with the libraries of their standards."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from prometheus_client import CollectorRegistry

from nimbus.adapters.telemetry import traces as traces_module
from nimbus.adapters.telemetry.lineage import LineageSink
from nimbus.adapters.telemetry.sink import RunFacts
from nimbus.adapters.telemetry.traces import TraceSink
from nimbus.bootstrap import telemetry
from nimbus.bootstrap.resources import SystemClock
from nimbus.bootstrap.telemetry import missing_extras, task_telemetry
from nimbus.cli.doctor import Level
from nimbus.cli.doctor.services import telemetry_of
from nimbus.config import Settings, load_settings
from nimbus.config.load import secret_files
from nimbus.domain.data.publications import Publication, Read, Version, interval_text
from nimbus.domain.ids import (
    AttemptId,
    ClusterId,
    DatasetName,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec, Parent
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.runs.traces import attempt_span_id, attempt_uuid, run_span_id, run_uuid, trace_id
from nimbus.engine.sending import RunExports
from nimbus.ports import StoreUnavailableError, TelemetryNotSentError
from nimbus.telemetry.engine import ExportMetrics
from tests.blobsync.integration.test_s3_tls import certificate
from tests.nimbus.collectors import Collector, collector

Eventually = Callable[..., None]
CLUSTER = ClusterId("1f-2a")
T0 = datetime(2026, 3, 1, tzinfo=UTC)
KEY = "Bearer very-secret-key"
TIMEOUT = timedelta(seconds=2)


def task(name: str, kind: TaskKind, *attempts: Attempt, state: TaskState = TaskState.SUCCEEDED) -> TaskRun:
    children = ChildSpec(pipeline=PipelineName("below")) if kind is TaskKind.PIPELINE else None
    spec = TaskSpec(name=TaskName(name), kind=kind, script=f"{name}.x", children=children)
    return TaskRun(spec=spec, state=state, attempts=attempts)


def attempt(number: int, outcome: Outcome | None, reason: str = "", minute: int = 1) -> Attempt:
    at = T0 + timedelta(minutes=minute)
    ended_at = None if outcome is None else at + timedelta(seconds=30)
    return Attempt(
        number=number,
        worker=WorkerId("w1"),
        opened_at=at,
        opened_by_epoch=1,
        started_at=at + timedelta(seconds=2),
        ended_at=ended_at,
        outcome=outcome,
        reason=reason,
    )


def run(name: str, *tasks: TaskRun, **more: Any) -> Run:
    fields: dict[str, Any] = {
        "id": RunId(name),
        "pipeline": PipelineName("sums"),
        "release": ReleaseDigest("ab" * 32),
        "parameters": {"password": "not told"},
        "logical_date": T0,
        "created_at": T0,
        "started_at": T0 + timedelta(seconds=5),
        "cause": RunCause.MANUAL,
        "priority": Priority.LOW,
        "failure_strategy": FailureStrategy.END,
        "tasks": Tasks(tasks),
        "data_interval": DataInterval(start=T0 - timedelta(days=1), end=T0),
    }
    return Run(**fields | more)


FAILED = run(
    "r1",
    task(
        "extract",
        TaskKind.PYTHON,
        attempt(1, Outcome.FAILED, "exit 1"),
        attempt(2, Outcome.SUCCEEDED, minute=2),
    ),
    task(
        "load", TaskKind.SQL, attempt(1, Outcome.LOST, "its host is gone", minute=3), state=TaskState.FAILED
    ),
    task("never", TaskKind.PYTHON, state=TaskState.NOT_RUN),
    state=RunState.FAILED,
    reason="load failed",
    finished_at=T0 + timedelta(minutes=9),
)
ATTEMPTS = [AttemptId(FAILED.id, TaskName(name), number) for name, number in
            (("extract", 1), ("extract", 2), ("load", 1))]  # fmt: skip


class World:
    """The data that sinks read."""

    def __init__(self) -> None:
        self.runs: dict[RunId, Run] = {}
        self.no_owner: Exception | None = None

    def facts(self) -> RunFacts:
        return RunFacts(
            read_cluster=lambda: CLUSTER,
            read_run=self.runs.get,
            read_slots=lambda _attempts: {},
            owner=self._owner,
            sql=lambda release, name: f"SELECT 1 -- {release.pipeline}/{name}",
        )

    def _owner(self, _name: PipelineName) -> str | None:
        if self.no_owner is not None:
            raise self.no_owner
        return "team:data"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def server() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    file = tmp_path / "headers"
    file.write_text(f"Authorization: {KEY}\nX-Scope-OrgID: one\n\n")
    return file


@pytest.fixture
def traces(world: World, server: Collector, headers: Path) -> Iterator[TraceSink]:
    sink = TraceSink(
        world.facts(),
        endpoint=server.traces_url,
        headers_file=headers,
        ca_file=None,
        timeout=TIMEOUT,
        service="nimbus",
    )
    yield sink
    sink.close()


@pytest.fixture
def lineage(world: World, server: Collector, headers: Path) -> Iterator[LineageSink]:
    sink = LineageSink(
        world.facts(),
        place=server.lineage_url,
        namespace="prod",
        headers_file=headers,
        ca_file=None,
        timeout=TIMEOUT,
        public_url="https://nimbus.example.com",
    )
    yield sink
    sink.close()


def attributes(span: OtlpSpan) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_trace_of_a_run_arrives_with_its_ids_times_and_errors(traces: TraceSink, server: Collector) -> None:
    assert traces.send(None, FAILED) == 4

    root, *spans = server.spans()
    assert {span.trace_id.hex() for span in (root, *spans)} == {trace_id(CLUSTER, FAILED.id)}
    assert (root.name, root.span_id.hex(), root.parent_span_id) == (
        "sums",
        run_span_id(CLUSTER, FAILED.id),
        b"",
    )
    assert [span.span_id.hex() for span in spans] == [attempt_span_id(CLUSTER, one) for one in ATTEMPTS]
    assert {span.parent_span_id for span in spans} == {root.span_id}
    assert (root.status.code, root.status.message) == (Status.STATUS_CODE_ERROR, "load failed")
    assert [span.status.message for span in spans] == ["exit 1", "", "its host is gone"]
    assert spans[1].status.code == Status.STATUS_CODE_OK
    assert spans[0].start_time_unix_nano == int((T0 + timedelta(minutes=1)).timestamp()) * 10**9
    assert spans[0].end_time_unix_nano - spans[0].start_time_unix_nano == 30 * 10**9
    assert attributes(spans[0]) == {
        "nimbus.pipeline": "sums",
        "nimbus.run": "r1",
        "nimbus.release": "ab" * 32,
        "nimbus.task": "extract",
        "nimbus.task.type": "python",
        "nimbus.attempt": 1,
        "nimbus.worker": "w1",
        "nimbus.outcome": "failed",
        "nimbus.started_after_s": 2.0,
    }
    assert attributes(root)["nimbus.queued_s"] == 5.0


def test_a_child_run_links_to_the_attempt_that_started_it(traces: TraceSink, server: Collector) -> None:
    above = Parent(run=RunId("r1"), top=RunId("r1"), task=TaskName("extract"), attempt=2, index=0, depth=1)
    traces.send(None, replace(FAILED, id=RunId("below"), parent=above))

    (link,) = server.spans()[0].links
    assert link.trace_id.hex() == trace_id(CLUSTER, FAILED.id)
    assert link.span_id.hex() == attempt_span_id(CLUSTER, ATTEMPTS[1])


def test_a_large_run_is_sent_in_batches_and_goes_on_where_it_was_refused(
    traces: TraceSink, server: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces_module, "AT_ONCE", 1)
    server.accepts = 2
    with pytest.raises(TelemetryNotSentError):
        traces.send(None, FAILED)
    server.accepts = None
    traces.send(None, FAILED)

    ids = [span.span_id for span in server.spans()]
    assert len(ids) == len(set(ids)) == 4


def test_lineage_of_a_run_has_a_start_and_an_end_for_each_attempt(
    lineage: LineageSink, server: Collector
) -> None:
    live = replace(FAILED, state=RunState.RUNNING, finished_at=None, reason="")
    live = replace(live, tasks=live.tasks.replaced([task("extract", TaskKind.PYTHON, attempt(1, None))]))
    live = replace(live, tasks=live.tasks.replaced([task("load", TaskKind.SQL, state=TaskState.WAITING)]))

    assert lineage.send(None, live) == 2
    assert lineage.send(live, FAILED) == 6

    events = server.events()
    of_run, of_attempts = run_uuid(CLUSTER, FAILED.id), [attempt_uuid(CLUSTER, one) for one in ATTEMPTS]
    assert [(event["run"]["runId"], event["eventType"]) for event in events] == [
        (of_run, "START"),
        (of_attempts[0], "START"),
        (of_attempts[0], "FAIL"),
        (of_attempts[1], "START"),
        (of_attempts[1], "COMPLETE"),
        (of_attempts[2], "START"),
        (of_attempts[2], "ABORT"),
        (of_run, "FAIL"),
    ]
    assert {event["job"]["namespace"] for event in events} == {"prod"}
    assert [event["job"]["name"] for event in events[:2]] == ["sums", "sums.extract"]


def test_lineage_says_what_its_facets_are_for(lineage: LineageSink, server: Collector) -> None:
    lineage.send(None, FAILED)

    events = {(one["job"]["name"], one["eventType"]): one for one in server.events()}
    run_facets = events["sums", "FAIL"]["run"]["facets"]
    assert run_facets["nominalTime"]["nominalStartTime"] == "2026-02-28T00:00:00+00:00"
    assert run_facets["nominalTime"]["nominalEndTime"] == "2026-03-01T00:00:00+00:00"
    assert run_facets["errorMessage"]["message"] == "load failed"
    assert "parent" not in run_facets
    start = events["sums.load", "START"]
    parent = start["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == run_uuid(CLUSTER, FAILED.id)
    assert parent["job"]["name"] == parent["root"]["job"]["name"] == "sums"
    assert start["job"]["facets"]["sql"]["query"] == "SELECT 1 -- sums/load.x"
    assert start["job"]["facets"]["jobType"]["jobType"] == "TASK"
    assert start["job"]["facets"]["ownership"]["owners"] == [{"name": "team:data"}]
    source = start["job"]["facets"]["sourceCodeLocation"]
    assert (source["version"], source["path"]) == ("ab" * 32, "load.x")
    assert "sql" not in events["sums.extract", "START"]["job"]["facets"]
    assert start["run"]["facets"]["processing_engine"]["name"] == "nimbus"
    assert all("parent" in one["run"]["facets"] for (job, _), one in events.items() if job != "sums")


def test_lineage_names_the_versions_of_datasets_that_are_pinned_and_published(
    lineage: LineageSink, server: Collector
) -> None:
    read, made = Read(name="orders", dataset=DatasetName("sales")), Publication(dataset=DatasetName("report"))
    interval = interval_text(DataInterval(start=T0 - timedelta(days=1), end=T0))
    source = AttemptId(RunId("r0"), TaskName("load"), 1)
    pinned = Version(
        partition=interval,
        number=7,
        run=RunId("r0"),
        task=TaskName("load"),
        source=source,
        output=None,
        at=T0,
    )
    reader = task("reader", TaskKind.PYTHON, attempt(1, Outcome.SUCCEEDED))
    reader = replace(reader, spec=replace(reader.spec, uses=("orders",), publishes=(made,)))
    other = task("other", TaskKind.PYTHON, attempt(1, Outcome.SUCCEEDED))
    lineage.send(
        None,
        run(
            "r1",
            reader,
            other,
            number=9,
            reads=(read,),
            pins={"orders": (pinned,)},
            state=RunState.SUCCEEDED,
            finished_at=T0 + timedelta(minutes=9),
        ),
    )

    orders, report = ("prod", "sales", f"{interval}~7"), ("prod", "report", "whole~9")
    named = {
        (event["job"]["name"], event["eventType"]): tuple(
            [
                (one["namespace"], one["name"], one["facets"]["version"]["datasetVersion"])
                for one in event[key]
            ]
            for key in ("inputs", "outputs")
        )
        for event in server.events()
    }
    assert named == {
        ("sums", "START"): ([], []),
        ("sums.reader", "START"): ([orders], []),
        ("sums.reader", "COMPLETE"): ([], [report]),
        ("sums.other", "START"): ([], []),
        ("sums.other", "COMPLETE"): ([], []),
        ("sums", "COMPLETE"): ([orders], [report]),
    }


def test_schedulers_without_a_public_url_send_equal_lineage(
    world: World, server: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor may have to send the events of its predecessor again; they must be equal."""
    monkeypatch.setattr(telemetry, "_facts", lambda *_: world.facts())
    for number in (1, 2):
        settings = settings_with(tmp_path, {"lineage": {"url": server.lineage_url}})
        scheduler = settings.scheduler.model_copy(update={"advertise_url": f"http://127.0.0.{number}:8080"})
        resources: Any = SimpleNamespace(settings=settings.model_copy(update={"scheduler": scheduler}))
        sink = telemetry._sinks(resources, Mock())["lineage"]
        sink.send(None, FAILED)
        sink.close()

    events = server.events()
    assert len(events) == 16
    assert events[:8] == events[8:]
    sources = {one["job"]["facets"]["sourceCodeLocation"]["url"] for one in events}
    assert sources == {f"urn:nimbus-scheduler:{CLUSTER}:pipelines:sums"}


def test_lineage_of_a_child_run_names_the_task_above_and_the_run_at_the_top(
    lineage: LineageSink, server: Collector, world: World
) -> None:
    top = run("top", pipeline=PipelineName("all"))
    above = Parent(run=top.id, top=top.id, task=TaskName("each"), attempt=1, index=0, depth=1)
    middle = run("middle", pipeline=PipelineName("some"), parent=above)
    below = Parent(run=middle.id, top=top.id, task=TaskName("part"), attempt=3, index=0, depth=2)
    world.runs |= {top.id: top, middle.id: middle}

    lineage.send(None, run("bottom", parent=below))

    (start,) = server.events()
    parent = start["run"]["facets"]["parent"]
    assert parent["job"]["name"] == "some.part"
    assert parent["run"]["runId"] == attempt_uuid(CLUSTER, AttemptId(middle.id, TaskName("part"), 3))
    assert parent["root"]["job"]["name"] == "all"
    assert parent["root"]["run"]["runId"] == run_uuid(CLUSTER, top.id)


def test_events_that_were_accepted_are_not_sent_again_when_a_later_one_is_refused(
    lineage: LineageSink, server: Collector
) -> None:
    server.accepts = 3
    with pytest.raises(Exception, match="400"):
        lineage.send(None, FAILED)
    server.accepts = None
    lineage.send(None, FAILED)

    seen = [(event["run"]["runId"], event["eventType"]) for event in server.events()]
    assert len(seen) == len(set(seen)) == 8


def test_keys_are_in_the_headers_alone_and_are_read_anew(
    traces: TraceSink, lineage: LineageSink, server: Collector, headers: Path
) -> None:
    traces.send(None, FAILED)
    lineage.send(None, FAILED)
    headers.write_text("Authorization: Bearer another")
    traces.send(None, FAILED)
    lineage.send(None, run("r2"))

    keys = [
        value
        for _, found, _ in server.got
        for name, value in found.items()
        if name.lower() == "authorization"
    ]
    assert keys == [KEY] * 9 + ["Bearer another"] * 2
    for _, _, body in server.got:
        assert b"secret" not in body
        assert b"not told" not in body


def test_a_file_of_headers_that_is_wrong_is_told_without_what_is_in_it(
    traces: TraceSink, headers: Path
) -> None:
    headers.write_text("very-secret")
    with pytest.raises(TelemetryNotSentError, match="line 1: is not `Name: value`") as wrong:
        traces.send(None, FAILED)
    assert "very-secret" not in str(wrong.value)
    headers.unlink()
    with pytest.raises(TelemetryNotSentError, match="cannot be read"):
        traces.send(None, FAILED)


@pytest.mark.parametrize("status", [302, 304, 307])
def test_redirections_are_neither_followed_nor_taken_for_acceptance(
    traces: TraceSink, lineage: LineageSink, server: Collector, status: int
) -> None:
    with collector() as other:
        server.status, server.location = status, "" if status == 304 else other.traces_url
        with pytest.raises(TelemetryNotSentError):
            traces.send(None, FAILED)
        server.location = server.location and other.lineage_url
        with pytest.raises(TelemetryNotSentError, match="redirections are not followed"):
            lineage.send(None, FAILED)
        assert other.got == []


def test_the_servers_certificate_is_verified(world: World, tmp_path: Path) -> None:
    file = certificate(tmp_path)
    with collector(file) as secure:

        def sinks(ca_file: Path | None) -> list[TraceSink | LineageSink]:
            return [
                TraceSink(
                    world.facts(),
                    endpoint=secure.traces_url,
                    headers_file=None,
                    ca_file=ca_file,
                    timeout=timedelta(seconds=1),
                    service="nimbus",
                ),
                LineageSink(
                    world.facts(),
                    place=secure.lineage_url,
                    namespace="prod",
                    headers_file=None,
                    ca_file=ca_file,
                    timeout=TIMEOUT,
                    public_url="http://127.0.0.1",
                ),
            ]

        for sink in sinks(None):
            with pytest.raises(Exception, match=r"did not accept|certificate verify failed"):
                sink.send(None, FAILED)
            sink.close()
        assert secure.got == []
        for sink in sinks(file):
            assert sink.send(None, FAILED) > 0
            sink.close()
        assert (len(secure.spans()), len(secure.events())) == (4, 8)


def test_lineage_goes_into_a_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    sink = LineageSink(
        world.facts(),
        place=file,
        namespace="prod",
        headers_file=None,
        ca_file=None,
        timeout=TIMEOUT,
        public_url="http://127.0.0.1",
    )
    sink.send(None, FAILED)
    sink.close()

    assert [json.loads(line)["eventType"] for line in file.read_text().splitlines()].count("START") == 4


@pytest.mark.parametrize("how", ["nobody listens", "it does not answer", "it refuses", "the store is away"])
def test_a_collector_that_is_dead_holds_up_no_other_and_is_given_up(
    world: World, eventually: Eventually, how: str
) -> None:
    done: list[str] = []
    with collector() as dead, collector() as living:
        if how == "nobody listens":
            dead.port = 9  # discard
        elif how == "it does not answer":
            dead.gate.clear()
        elif how == "it refuses":
            dead.status = 500
        else:
            world.no_owner = StoreUnavailableError("not now")
        sinks = {
            "lineage": LineageSink(
                world.facts(),
                place=dead.lineage_url,
                namespace="prod",
                headers_file=None,
                ca_file=None,
                timeout=timedelta(seconds=0.2),
                public_url="http://127.0.0.1",
            ),
            "traces": TraceSink(
                world.facts(),
                endpoint=living.traces_url,
                headers_file=None,
                ca_file=None,
                timeout=TIMEOUT,
                service="nimbus",
            ),
        }
        registry = CollectorRegistry()
        exports = RunExports(
            sinks,
            leads=lambda: True,
            clock=SystemClock(),
            give_up_after=timedelta(seconds=1),
            metrics=ExportMetrics(registry),
        )
        ended = replace(FAILED, finished_at=datetime.now(UTC))
        exports.follow(1, ended)
        exports.finish(ended, lambda: done.append("r1"))

        eventually(lambda: len(living.spans()) == 4)
        eventually(lambda: done == ["r1"])
        exports.close()
        dropped = registry.get_sample_value("nimbus_telemetry_dropped_runs_total", {"kind": "lineage"})
        assert dropped == 1
        assert not dead.got
    eventually(lambda: not any("nimbus-export" in one.name for one in threading.enumerate()))


def settings_with(tmp_path: Path, telemetry: Mapping[str, Any]) -> Settings:
    document = {
        "cluster": {"root": "/prod"},
        "zookeeper": {"hosts": "127.0.0.1:2181"},
        "storage": {"bucket": "nimbus"},
        "scheduler": {"state_dir": str(tmp_path)},
        "worker": {"data": str(tmp_path)},
        "telemetry": telemetry,
    }
    file = tmp_path / "nimbus.yaml"
    file.write_text(json.dumps(document))
    return load_settings(file, {})


BOTH = {
    "traces": {"endpoint": "http://collector:4318/v1/traces", "headers_file": "/etc/a"},
    "lineage": {"url": "https://lineage/api/v1/lineage", "headers_file": "/etc/b", "spark": True},
}


def test_an_extra_that_is_configured_and_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, none = settings_with(tmp_path, BOTH), settings_with(tmp_path, {})
    assert missing_extras(both) == []

    def find(name: str) -> ModuleSpec | None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(telemetry, "find_spec", find)

    assert [(one.key, one.message) for one in missing_extras(both)] == [
        ("telemetry.traces", "needs the extra otel: pip install 'nimbus-scheduler[otel]'"),
        ("telemetry.lineage", "needs the extra openlineage: pip install 'nimbus-scheduler[openlineage]'"),
    ]
    assert missing_extras(none) == []


def test_doctor_says_what_stands_in_the_way(tmp_path: Path, server: Collector, headers: Path) -> None:
    both = {
        "traces": {"endpoint": server.traces_url, "headers_file": str(headers)},
        "lineage": {"url": "http://127.0.0.1:9/api/v1/lineage"},
    }
    found = {one.check: one for one in telemetry_of(settings_with(tmp_path, both))}
    assert found["telemetry.traces"].verdict is Level.OK
    assert found["telemetry.lineage"].verdict is Level.FAIL
    headers.unlink()

    (traces, _) = telemetry_of(settings_with(tmp_path, both))

    assert (traces.verdict, traces.advice) == (Level.FAIL, "correct headers_file")
    assert server.got == []


def test_keys_of_collectors_are_secret_files_and_no_task_is_told_them(tmp_path: Path) -> None:
    found = settings_with(tmp_path, BOTH)

    assert secret_files(found, {}) >= {Path("/etc/a"), Path("/etc/b")}
    told = task_telemetry(found)
    assert told.traces
    assert told.namespace == "prod"
    assert told.transport == {
        "transport.type": "http",
        "transport.url": "https://lineage",
        "transport.endpoint": "/api/v1/lineage",
    }


def test_the_libraries_are_not_imported_before_something_is_sent() -> None:
    code = (
        "import sys, nimbus.bootstrap.scheduler\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'openlineage'))]"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stderr
