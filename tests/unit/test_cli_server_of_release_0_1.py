"""Commands understand what a scheduler of release 0.1 answers, as it may during a rolling upgrade."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.client import Api
from nimbus.cli.main import cli

SUMMARY = b"""
"id":"r","pipeline":"p","release":"aaaa","state":"running","reason":"","cause":"schedule","priority":"low",
"logical_date":"2026-03-01T12:00:00Z","created_at":"2026-03-01T12:00:00Z","finished_at":null,"tasks_total":2,
"tasks_done":0,"archived":false"""
RUN = b"""
{%s,"parameters":{"day":"2026-03-01"},"verdict":null,"deadline":"2026-03-01T14:00:00Z",
"failure_strategy":"end","tasks":[{"name":"load","kind":"python","state":"running","needs":[],
"retry_at":null,"why":"worker w1 is preparing it","attempts":[{"number":1,"worker":"w1",
"opened_at":"2026-03-01T12:00:00Z","opened_by_epoch":3,"started_at":null,"ended_at":"2026-03-01T12:00:00Z",
"outcome":"failed","reason":"exit 1","exit_code":1,"output":null,"host":null,"pid":null,"progress":null}]},
{"name":"clean","kind":"sql","state":"waiting","needs":["load"],"retry_at":null,
"why":"needs load (running)","attempts":[]}]}""" % (SUMMARY,)
PIPELINE = b"""
"name":"p","state":"active","description":"d","release":"aaaa","published":"aaaa",
"schedule":{"cron":"0 * * * *","timezone":"UTC","catchup":"latest"},"tasks":1,"quarantined":null,
"updated_at":"2026-03-01T12:00:00Z" """
SPEC = b"""
{"description":"d","schedule":{"cron":"0 * * * *","timezone":"UTC","catchup":"latest"},
"failure_strategy":"end","priority":"medium","timeout_s":null,"parameters":{"day":{"type":"string",
"default":null,"required":true,"minimum":null,"maximum":null,"choices":[],"description":""}},
"tasks":[{"name":"clean","kind":"sql","script":"a.sql","args":[],"needs":["load"],"retries":{"limit":0,
"delay_s":10.0,"factor":2.0,"max_delay_s":600.0},"timeout_s":null,"priority":"medium","spark_conf":{}}]}"""
ANSWERS = {
    "/runs": b'{"runs":[{%s}],"history_complete":true}' % (SUMMARY,),
    "/runs/r": RUN,
    "/pipelines": b'{"pipelines":[{%s}]}' % (PIPELINE,),
    "/pipelines/p": b'{%s,"schedule_position":"2026-03-01T12:00:00Z","spec":%s}' % (PIPELINE, SPEC),
    "/workers": b"""
{"workers":[{"id":"w1","host":"boot-1-abcd","hostname":"h","pid":1,"slots":4,"busy":1,"version":"0.1.0",
"started_at":"2026-03-01T12:00:00Z","draining":false,"load_average":0.0,"memory_available_bytes":0,
"scheduler_id":"s1"}]}""",
    "/participants": b"""
{"leader":{"id":"s1","address":"http://s1:8700","epoch":7,"leader_since":null},"participants":[{"id":"s1",
"registered":true,"queue_position":0,"is_leader":true,"address":"http://h:8700","host":"boot-1-abcd",
"hostname":"h","pid":2,"boot_id":"b","version":"0.1.0","started_at":"2026-03-01T12:00:00Z",
"reported_at":"2026-03-01T12:00:00Z","role":"leader","epoch":3,"leader_since":"2026-03-01T12:00:00Z",
"recovered_at":"2026-03-01T12:00:00Z","ready":true,"missing_count":0,"missing_bytes":0,"missing":[],
"last_abdication":"","quarantined":{"q":"gone"},"load_average":0.0,"memory_available_bytes":0,
"disk_free_bytes":0},{"id":"s2","registered":false,"queue_position":1,"is_leader":false,"address":null,
"host":null,"hostname":null,"pid":null,"boot_id":"boot-s2","version":null,"started_at":null,
"reported_at":null,"role":null,"epoch":null,"leader_since":null,"recovered_at":null,"ready":false,
"missing_count":0,"missing_bytes":0,"missing":[],"last_abdication":"","quarantined":{},"load_average":0.0,
"memory_available_bytes":0,"disk_free_bytes":0}]}""",
    "/status": b"""
{"leader":{"id":"s1","address":"http://s1:8700","epoch":7,"leader_since":null},"answered_by":"s1",
"version":"0.1.0","schedulers":1,"schedulers_ready":1,"workers":1,"slots":4,"slots_busy":1,
"pipelines":{"active":1},"runs":{"running":1},"commands_waiting":0,"quarantined":{"q":"gone"}}""",
}
"""By path, as release 0.1 (commit ea458e9) sent them. Only digests are shortened, and lines are broken."""


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("run list", "0/2"),
        ("run show r", "needs load (running)"),
        ("pipeline list", "0 * * * * (UTC)"),
        ("pipeline show p", "a.sql"),
        ("cluster status", "s1 (epoch 7)"),
        ("cluster workers", "1/4"),
        ("cluster participants", "s1"),
        ("simulate --from 2026-03-01 --to 2026-03-02", "24"),
    ],
)
def test_command_shows_what_the_server_tells(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_api: Api, path: str, **_query: Any) -> Any:
        return json.loads(ANSWERS[path])

    monkeypatch.setattr(Api, "get", get)

    told = CliRunner().invoke(cli, [*command.split(), "--server", "http://s1:8700"], catch_exceptions=False)

    assert (told.exit_code, shown in told.stdout) == (0, True), told.output
