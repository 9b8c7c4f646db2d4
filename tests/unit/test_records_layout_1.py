"""Runs of layout 1 are written like in release 0.1, which had one word for skipped and for not run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nimbus import records, run_record
from nimbus.domain import lifecycle
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.run import Run, RunCause, RunState
from nimbus.domain.task_run import TaskRun, TaskState
from nimbus.domain.tasks import Tasks
from nimbus.records import UnreadableRecordError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A = TaskName("a")
RUN = lifecycle.stop(
    Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        layout=1,
        tasks=Tasks([TaskRun(spec=TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"))]),
    ),
    verdict=RunState.STOPPED,
    reason="by hand",
    now=NOW,
)


def test_a_task_that_did_not_run_is_skipped_in_layout_1_and_reads_back() -> None:
    data = records.RUN.encode(RUN)

    task = json.loads(data)["tasks"]["a"]
    assert task["state"] == "skipped"
    assert not {"requirements", "when", "allow_failure"} & task["spec"].keys()
    assert records.RUN.decode(data, "/runs/r") == RUN
    assert RUN.tasks[A].state is TaskState.NOT_RUN


def test_run_that_release_0_1_wrote_is_listed() -> None:
    """It sorts the keys of a record, so the schema number is not the first."""
    data = json.dumps(json.loads(records.RUN.encode(RUN)), separators=(",", ":"), sort_keys=True).encode()

    found = run_record.listed(data, "/runs/r")

    assert not data.startswith(b'{"schema"')
    assert (found.id, found.state, found.created_at) == (RUN.id, RUN.state, NOW)


@pytest.mark.parametrize("data", [b'{"id":"r","schema":3}', b'{"id":"r"}', b"[1]", b"{", b""])
def test_run_of_no_known_schema_is_not_listed(data: bytes) -> None:
    with pytest.raises(UnreadableRecordError, match=r"^/runs/r cannot be read: "):
        run_record.listed(data, "/runs/r")


def test_a_task_that_did_not_run_keeps_its_state_in_layout_2() -> None:
    run = replace(RUN, layout=2)

    assert records.RUN.decode(records.RUN.encode(run), "runs/r.json") == run
