"""Records of attempts and runs leave out defaults, so the meaning of a default must never change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from nimbus import records, run_record
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import DataStart, FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.due import Due

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPEC = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py")
DIGEST = ReleaseDigest("0" * 64)
ORDER = Assignment(
    attempt="r.a.1",
    kind=AssignmentKind.RUN,
    epoch=1,
    pipeline=PipelineName("p"),
    release=DIGEST,
    run=RunId("r"),
    task=SPEC,
    logical_date=NOW,
)
CLAIM = Claim(attempt="r.a.1", claimed_at=NOW)
END = End(attempt="r.a.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW)
RUN = Run(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=DIGEST,
    parameters={},
    logical_date=NOW,
    created_at=NOW,
    cause=RunCause.MANUAL,
    priority=Priority.MEDIUM,
    failure_strategy=FailureStrategy.END,
    tasks=Tasks([TaskRun(spec=SPEC)]),
)


def test_what_an_attempt_writes_holds_no_defaults_and_reads_back() -> None:
    order, claim, end = records.ASSIGNMENT.encode(ORDER), records.CLAIM.encode(CLAIM), records.END.encode(END)

    assert json.loads(order).keys() == {
        "schema", "attempt", "kind", "epoch", "pipeline", "release", "run", "task", "logical_date",
    }  # fmt: skip
    assert json.loads(order)["task"].keys() == {"name", "kind", "script"}
    assert json.loads(claim).keys() == {"schema", "attempt", "claimed_at"}
    assert json.loads(end).keys() == {"schema", "attempt", "outcome", "written_by", "ended_at"}
    assert records.ASSIGNMENT.decode(order, "order") == ORDER
    assert records.CLAIM.decode(claim, "claim") == CLAIM
    assert records.END.decode(end, "end") == END


def test_a_header_holds_no_defaults_but_the_state_which_lists_read() -> None:
    nodes = run_record.encode_new(RUN)

    assert json.loads(nodes[""]).keys() == {
        "schema", "state", "id", "pipeline", "release", "logical_date", "created_at", "cause", "priority",
        "failure_strategy", "plan", "page",
    }  # fmt: skip
    assert run_record.decode(nodes, "/runs/r") == RUN
    assert run_record.listed(nodes[""], "/runs/r").state is RunState.RUNNING


def test_spans_are_written_as_numbers() -> None:
    hour = timedelta(hours=1)
    spans = (
        DataInterval(start=NOW, end=NOW + hour),
        DataInterval(start=NOW + 2 * hour, end=NOW + 3 * hour + timedelta(microseconds=1)),
    )
    due = Due(pipeline=PipelineName("p"), start=DataStart(), extents=spans)
    body = json.loads(records.DUE.encode(due))
    assert body["extents"][1:] == [3_600_000_000, 3_600_000_000, 3_600_000_001]
    assert records.DUE.decode(json.dumps(body).encode(), "here") == due


@pytest.mark.parametrize(
    "stored", [[1], [1, "x"], [10**30, 1], 7, [None], [{"start": NOW.isoformat(), "end": NOW.isoformat()}]]
)
def test_spans_that_are_no_intervals_are_refused(stored: object) -> None:
    body = {**json.loads(records.DUE.encode(Due(pipeline=PipelineName("p"), start=DataStart())))}
    with pytest.raises(records.UnreadableRecordError):
        records.DUE.decode(json.dumps({**body, "extents": stored}).encode(), "here")
