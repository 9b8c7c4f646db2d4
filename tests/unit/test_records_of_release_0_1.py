"""Records that release 0.1 wrote are read, and what is written in their place is read by release 0.1.

The literals are what commit ea458e9 wrote, with lines broken. It sorts all keys.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from blobsync.testing.memory import MemoryObjectStore
from leader.protocol import control, participant, terms
from nimbus import pipeline_record, records, run_record
from nimbus.adapters.s3_history import S3History
from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.run import RunState
from nimbus.domain.schedulers import Role
from nimbus.domain.slots import Holder
from nimbus.domain.task_run import Outcome, TaskState
from nimbus.domain.workers import AssignmentKind
from nimbus.worker.attempt_folder import AttemptFolder

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _bytes(text: bytes) -> bytes:
    return text.replace(b"\n", b"")


RUN = _bytes(b"""
{"cause":"schedule","created_at":"2026-03-01T12:00:00Z","deadline":"2026-03-01T14:00:00Z",
"failure_strategy":"end","finished_at":null,"id":"r","logical_date":"2026-03-01T12:00:00Z","parameters":{
"day":"2026-03-01"},"pipeline":"p","priority":3,"python_path":[],"reason":"",
"release":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","schema":1,"state":"running",
"tasks":{"clean":{"attempts":[],"retry_at":null,"spec":{"args":[],"kind":"sql","name":"clean","needs":[
"load"],"priority":2,"retries":{"delay":"PT10S","factor":2.0,"limit":0,"max_delay":"PT10M"},
"script":"a.sql","spark_conf":{},"timeout":null},"state":"waiting"},"load":{"attempts":[{
"ended_at":"2026-03-01T12:00:00Z","exit_code":1,"number":1,"opened_at":"2026-03-01T12:00:00Z",
"opened_by_epoch":3,"outcome":"failed","output":null,"reaper":null,"reason":"exit 1","started_at":null,
"stop_requested":false,"worker":"w1"},{"ended_at":null,"exit_code":null,"number":2,
"opened_at":"2026-03-01T12:00:00Z","opened_by_epoch":3,"outcome":null,"output":null,"reaper":null,
"reason":"","started_at":"2026-03-01T12:00:00Z","stop_requested":false,"worker":"w1"}],"retry_at":null,
"spec":{"args":["x"],"kind":"python","name":"load","needs":[],"priority":2,"retries":{"delay":"PT1.5S",
"factor":2.0,"limit":2,"max_delay":"PT10M"},"script":"a.py","spark_conf":{},"timeout":"PT1H"},
"state":"running"}},"verdict":null}""")
ENDED = _bytes(b"""
{"cause":"schedule","created_at":"2026-03-01T12:00:00Z","deadline":"2026-03-01T14:00:00Z",
"failure_strategy":"end","finished_at":"2026-03-01T12:00:00Z","id":"r",
"logical_date":"2026-03-01T12:00:00Z","parameters":{"day":"2026-03-01"},"pipeline":"p","priority":3,
"python_path":[],"reason":"failed: load",
"release":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","schema":1,"state":"failed",
"tasks":{"clean":{"attempts":[],"retry_at":null,"spec":{"args":[],"kind":"sql","name":"clean","needs":[
"load"],"priority":2,"retries":{"delay":"PT10S","factor":2.0,"limit":0,"max_delay":"PT10M"},
"script":"a.sql","spark_conf":{},"timeout":null},"state":"skipped"},"load":{"attempts":[{
"ended_at":"2026-03-01T12:00:00Z","exit_code":null,"number":1,"opened_at":"2026-03-01T12:00:00Z",
"opened_by_epoch":3,"outcome":"timed_out","output":null,"reaper":null,"reason":"1h","started_at":null,
"stop_requested":false,"worker":"w1"}],"retry_at":null,"spec":{"args":["x"],"kind":"python","name":"load",
"needs":[],"priority":2,"retries":{"delay":"PT1.5S","factor":2.0,"limit":2,"max_delay":"PT10M"},
"script":"a.py","spark_conf":{},"timeout":"PT1H"},"state":"failed"}},"verdict":"failed"}""")
PIPELINE = _bytes(b"""
{"name":"p","published":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
"published_spec":{"dependencies":[],"description":"d","failure_strategy":"end","files":["**/*"],"name":"p",
"parameters":{"day":{"choices":[],"default":null,"description":"","maximum":null,"minimum":null,
"required":true,"type":"string"}},"priority":2,"python_path":[],"schedule":{"catchup":"latest",
"cron":"0 * * * *","timezone":"UTC"},"tasks":[{"args":[],"kind":"sql","name":"clean","needs":["load"],
"priority":2,"retries":{"delay":"PT10S","factor":2.0,"limit":0,"max_delay":"PT10M"},"script":"a.sql",
"spark_conf":{},"timeout":null}],"timeout":null},
"release":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
"schedule_position":"2026-03-01T12:00:00Z","schema":1,"spec":{"dependencies":[],"description":"d",
"failure_strategy":"end","files":["**/*"],"name":"p","parameters":{"day":{"choices":[],"default":null,
"description":"","maximum":null,"minimum":null,"required":true,"type":"string"}},"priority":2,
"python_path":[],"schedule":{"catchup":"latest","cron":"0 * * * *","timezone":"UTC"},"tasks":[{"args":[],
"kind":"sql","name":"clean","needs":["load"],"priority":2,"retries":{"delay":"PT10S","factor":2.0,
"limit":0,"max_delay":"PT10M"},"script":"a.sql","spark_conf":{},"timeout":null}],"timeout":null},
"state":"active","updated_at":"2026-03-01T12:00:00Z"}""")
OUTCOME = _bytes(b"""
{"accepted":false,"code":"unknown_run","command":"cmd-0000000007","decided_at":"2026-03-01T12:00:00Z",
"epoch":3,"message":"there is no run r","schema":1}""")
CLAIM = _bytes(b"""
{"attempt":"r.load.2","claimed_at":"2026-03-01T12:00:00Z","fenced_by_epoch":null,"host":"boot-1-abcd",
"pid":41,"schema":1,"start_ticks":5,"worker":"w1"}""")
FENCE = _bytes(b"""
{"attempt":"r.load.2","claimed_at":"2026-03-01T12:00:00Z","fenced_by_epoch":3,"host":null,"pid":null,
"schema":1,"start_ticks":null,"worker":null}""")
END = _bytes(b"""
{"attempt":"r.load.2","ended_at":"2026-03-01T12:00:00Z","exit_code":0,"outcome":"succeeded",
"output":"p/r/load/2","reason":"","schema":1,"started_at":"2026-03-01T12:00:00Z","written_by":"runner"}""")
ORDER = _bytes(b"""
{"attempt":"r.load.2","claim":{"attempt":"r.load.2","claimed_at":"2026-03-01T12:00:00Z",
"fenced_by_epoch":null,"host":"boot-1-abcd","pid":41,"start_ticks":5,"worker":"w1"},"epoch":3,"inputs":{},
"kind":"reap","logical_date":"2026-03-01T12:00:00Z","output":"p/r/load/2","parameters":{},"pipeline":"p",
"python_path":[],"release":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","run":"r",
"schema":1,"task":{"args":["x"],"kind":"python","name":"load","needs":[],"priority":2,"retries":{
"delay":"PT1.5S","factor":2.0,"limit":2,"max_delay":"PT10M"},"script":"a.py","spark_conf":{},
"timeout":"PT1H"},"timeout":null}""")
WORKER = _bytes(b"""
{"draining":false,"host":"boot-1-abcd","hostname":"h","id":"w1","load_average":0.0,
"memory_available_bytes":0,"pid":1,"scheduler_id":"s1","schema":1,"slots":4,
"started_at":"2026-03-01T12:00:00Z","version":"0.1.0"}""")
SCHEDULER = _bytes(b"""
{"address":"http://h:8700","boot_id":"b","disk_free_bytes":0,"epoch":3,"host":"boot-1-abcd","hostname":"h",
"id":"s1","last_abdication":"","leader_since":"2026-03-01T12:00:00Z","load_average":0.0,
"memory_available_bytes":0,"missing":[],"missing_bytes":0,"missing_count":0,"pid":2,"quarantined":{
"q":"gone"},"queue_position":0,"ready":true,"recovered_at":"2026-03-01T12:00:00Z",
"reported_at":"2026-03-01T12:00:00Z","role":"leader","schema":1,"started_at":"2026-03-01T12:00:00Z",
"version":"0.1.0"}""")

COMMANDS = {
    "publish_release": _bytes(b"""
{"command":{"activate":true,"digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
"pipeline":"p","type":"publish_release"},"schema":1,"submitted_at":"2026-03-01T12:00:00+00:00",
"submitted_by":"10.0.0.1"}"""),
    "activate_pipeline": _bytes(b"""
{"command":{"digest":null,"pipeline":"p","type":"activate_pipeline"},"schema":1,
"submitted_at":"2026-03-01T12:00:00+00:00","submitted_by":"10.0.0.1"}"""),
    "pause_pipeline": _bytes(b"""
{"command":{"pipeline":"p","type":"pause_pipeline"},"schema":1,"submitted_at":"2026-03-01T12:00:00+00:00",
"submitted_by":"10.0.0.1"}"""),
    "remove_pipeline": _bytes(b"""
{"command":{"pipeline":"p","type":"remove_pipeline"},"schema":1,"submitted_at":"2026-03-01T12:00:00+00:00",
"submitted_by":"10.0.0.1"}"""),
    "start_run": _bytes(b"""
{"command":{"logical_date":null,"parameters":{"n":1},"pipeline":"p","priority":null,"run_id":"r",
"type":"start_run"},"schema":1,"submitted_at":"2026-03-01T12:00:00+00:00","submitted_by":"10.0.0.1"}"""),
    "stop_run": _bytes(b"""
{"command":{"reason":"by hand","run_id":"r","type":"stop_run"},"schema":1,
"submitted_at":"2026-03-01T12:00:00+00:00","submitted_by":"10.0.0.1"}"""),
    "abdicate": _bytes(b"""
{"command":{"reason":"upgrade","type":"abdicate"},"schema":1,"submitted_at":"2026-03-01T12:00:00+00:00",
"submitted_by":"10.0.0.1"}"""),
}
EPOCH = b'{"epoch": 3, "latch": "_c_x-latch-0000000001", "schema": 1}'
LEADER = b'{"boot_id": "b", "epoch": 3, "host": "h", "id": "s1", "port": 8700, "schema": 1, "session_id": 5}'
CARD = (
    b'{"boot_id": "b", "declined": false, "host": "h", "id": "s1", "leads": true, "missing": 1, '
    b'"missing_bytes": 9, "nofailover": false, "port": 8700, "queues": true, "reasons": ["a.py is missing"], '
    b'"reserve": 0, "schema": 1, "session_id": 5, "unready": 2}'
)
CONTROL = b'{"pause": null, "schema": 1, "switchover": {"epoch": 3, "reason": "upgrade", "to": "s2"}}'
COMPONENT = (
    b'{"address": "http://h", "epoch": 3, "id": "s1", "schema": 1, '
    b'"session": "11111111-1111-1111-1111-111111111111"}'
)


def _check_release_0_1_reads(written: bytes, before: bytes) -> None:
    """All fields that release 0.1 reads are there as it wrote them. It ignores others."""
    _check_in(json.loads(written), json.loads(before))


def _check_in(new: Any, old: Any) -> None:
    if isinstance(old, dict):
        for key, value in old.items():
            _check_in(new[key], value)
    elif isinstance(old, list):
        for one, other in zip(new, old, strict=True):
            _check_in(one, other)
    else:
        assert new == old


def test_live_run_is_read_listed_and_written_for_the_release_that_may_lead_next() -> None:
    run, listed = records.RUN.decode(RUN, "/runs/r"), run_record.listed(RUN, "/runs/r")

    assert not run_record.is_header(RUN)
    assert (listed.id, listed.state, listed.created_at) == (RunId("r"), RunState.RUNNING, NOON)
    assert (run.layout, run.state, run.listed()) == (1, RunState.RUNNING, listed)
    load, clean = run.tasks[TaskName("load")], run.tasks[TaskName("clean")]
    assert (load.state, load.tried, load.failures, clean.state) == (
        TaskState.RUNNING, 2, 1, TaskState.WAITING,
    )  # fmt: skip
    assert run.open_attempts() == (AttemptId(RunId("r"), TaskName("load"), 2),)
    assert (clean.spec.needs, load.spec.retries.limit) == ((TaskName("load"),), 2)
    _check_release_0_1_reads(records.RUN.encode(run), RUN)


def test_ended_run_is_found_in_history() -> None:
    store = MemoryObjectStore()
    store.write("history/runs/r.json", ENDED)
    for index in ("recent", "pipelines/p"):
        store.write(f"history/{index}/8227633599~r", b"1")
    history = S3History(store)

    (run,) = history.recent(PipelineName("p"), 10).runs

    assert (run, (run,)) == (history.read(RunId("r")), history.recent(None, 10).runs)
    assert (run.state, run.reason, run.finished_at) == (RunState.FAILED, "failed: load", NOON)
    assert {name: task.state for name, task in run.tasks.items()} == {
        "clean": TaskState.NOT_RUN,
        "load": TaskState.FAILED,
    }
    assert list(history.created_before(datetime(2026, 4, 1, tzinfo=UTC), None)) == ["r"]
    _check_release_0_1_reads(records.RUN.encode(run), ENDED)


def test_pipeline_keeps_its_layout_while_release_0_1_may_lead() -> None:
    found = pipeline_record.with_position(pipeline_record.decode(PIPELINE, ""), None, "")

    assert (found.name, found.release, found.schedule_position) == ("p", "a" * 64, NOON)
    assert (found.profile.tasks, found.layout) == (1, 1)
    _check_release_0_1_reads(pipeline_record.encode(found), PIPELINE)


@pytest.mark.parametrize(
    "command",
    [
        PublishRelease(pipeline=PipelineName("p"), digest=ReleaseDigest("a" * 64), activate=True),
        ActivatePipeline(pipeline=PipelineName("p")),
        PausePipeline(pipeline=PipelineName("p")),
        RemovePipeline(pipeline=PipelineName("p")),
        StartRun(pipeline=PipelineName("p"), run_id=RunId("r"), parameters={"n": 1}),
        StopRun(run_id=RunId("r"), reason="by hand"),
        Abdicate(reason="upgrade"),
    ],
    ids=COMMANDS,
)
def test_waiting_command_is_read(command: Any) -> None:
    data = COMMANDS[command.type]

    body = records.COMMAND.decode(data, "cmd")

    assert (body.command, body.submitted_by) == (command, "10.0.0.1")
    assert (body.asked_by, body.key, body.if_match) == (None, None, ())
    _check_release_0_1_reads(records.COMMAND.encode(body), data)


def test_outcome_and_registrations_are_read() -> None:
    outcome = records.OUTCOME.decode(OUTCOME, "")
    worker, scheduler = records.WORKER.decode(WORKER, ""), records.SCHEDULER.decode(SCHEDULER, "")

    assert (outcome.accepted, outcome.code, outcome.kind) == (False, "unknown_run", "")
    assert (worker.slots, worker.newest_schema, worker.has_java) == (4, 1, True)
    assert (scheduler.role, scheduler.newest_schema, scheduler.lacks) == (Role.LEADER, 1, "")
    _check_release_0_1_reads(records.OUTCOME.encode(outcome), OUTCOME)
    _check_release_0_1_reads(records.WORKER.encode(worker), WORKER)
    without_position = json.dumps({**json.loads(SCHEDULER), "queue_position": None}).encode()
    written = {"queue_position": None, **json.loads(records.SCHEDULER.encode(scheduler))}
    _check_release_0_1_reads(json.dumps(written).encode(), without_position)


def test_slots_and_order_of_an_attempt_are_read() -> None:
    """`test_records_sparse.py` shows that release 0.1 reads what is written in their place."""
    claim, fence = records.CLAIM.decode(CLAIM, ""), records.CLAIM.decode(FENCE, "")
    end, order = records.END.decode(END, ""), records.ASSIGNMENT.decode(ORDER, "")

    assert (claim.holder, claim.pid, claim.nonce, claim.is_fenced) == (Holder.PROCESS, 41, None, False)
    assert (fence.is_fenced, fence.host) == (True, None)
    assert (end.outcome, end.output, end.failure, end.nonce) == (Outcome.SUCCEEDED, "p/r/load/2", None, None)
    assert (order.kind, order.claim, order.memory_scale) == (AssignmentKind.REAP, claim, 1.0)


def test_folder_of_an_attempt_is_taken_over(tmp_path: Path) -> None:
    place = tmp_path / "attempts" / "r.load.2"
    place.mkdir(parents=True)
    for name, data in (
        ("order.json", ORDER),
        ("claim.json", CLAIM),
        ("exit.json", END),
        ("lock", b"41 5 boot-1-abcd\n"),
        ("log", b"done\n"),
        ("log.stored", b"3"),
        ("progress.json", b'{"stages": 3}'),
        ("driver.json", b'{"kind": "python", "script": "a.py", "args": ["x"]}'),
    ):
        (place / name).write_bytes(data)

    (folder,) = AttemptFolder.all_in(tmp_path)

    assert (folder.order().attempt, folder.is_locked(), folder.is_delivered) == ("r.load.2", False, False)
    assert folder.claim() == records.CLAIM.decode(CLAIM, "")
    assert folder.exit_record() == records.END.decode(END, "")
    assert (folder.last_runner(), folder.application(), folder.session()) == (None, None, None)
    assert (folder.log_size(), folder.log_stored(), folder.log_limit()) == (5, 3, 64 << 20)


def test_election_is_read_and_written_for_a_participant_of_release_0_1() -> None:
    epoch, info = terms.decode_epoch(EPOCH, ""), terms.decode_leader(LEADER, "")
    card, wanted = participant.decode_card(CARD, ""), control.decode_control(CONTROL, "")
    component = terms.decode_component(COMPONENT, "")

    assert epoch == terms.EpochRecord(3, "_c_x-latch-0000000001", schema=1)
    assert (info.participant.id, info.session_id) == ("s1", 5)
    assert (card.rank, card.reasons) == (participant.Rank(2, 1, 9, 0, "s1"), ("a.py is missing",))
    assert wanted == control.Control(None, control.Switchover("s2", 3, "upgrade"))
    assert component.session == UUID("11111111-1111-1111-1111-111111111111")
    _check_release_0_1_reads(terms.encode_epoch(epoch), EPOCH)
    _check_release_0_1_reads(terms.encode_leader(info), LEADER)
    _check_release_0_1_reads(participant.encode_card(card), CARD)
    _check_release_0_1_reads(control.encode_control(wanted), CONTROL)
    _check_release_0_1_reads(terms.encode_component(component), COMPONENT)
