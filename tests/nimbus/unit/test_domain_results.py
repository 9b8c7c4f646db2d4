"""What the tasks of an ended run gave, for history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.data.outputs import TaskResults, given
from nimbus.domain.data.publications import Publication, Table
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = Table(columns={"x": "int"})
LOAD, CHECK = TaskName("load"), TaskName("check")
ATTEMPT = AttemptId(RunId("r"), LOAD, 1)
END = End(
    attempt=str(ATTEMPT),
    outcome=Outcome.SUCCEEDED,
    written_by="runner",
    ended_at=NOW,
    output="p/r/load/1",
    result={"rows": 3},
    table=TABLE,
)


def audited() -> Run:
    """A run whose task `load` made a table that `check` has published."""
    load = TaskSpec(name=LOAD, kind=TaskKind.PYTHON, script="l.py")
    published = Publication(dataset=DatasetName("d"), of=LOAD)
    check = replace(load, name=CHECK, needs=(LOAD,), publishes=(published,))
    draft = Draft(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        cause=RunCause.MANUAL,
        asked_at=NOW,
    )
    run = lifecycle.begin(new_run(PipelineSpec(name=PipelineName("p"), tasks=(load, check)), draft), NOW)
    for attempt in (ATTEMPT, replace(ATTEMPT, task=CHECK)):
        run = lifecycle.open_attempt(run, attempt.task, worker=WorkerId("w"), epoch=1, now=NOW)
        end = END if attempt is ATTEMPT else replace(END, result=None, table=None)
        run = lifecycle.close_attempt(
            run, attempt, replace(end, attempt=str(attempt)), max_infrastructure_failures=1, now=NOW
        )
    return run


def test_columns_of_an_audited_table_come_from_the_end_of_the_attempt_that_made_it() -> None:
    def slots(attempts: Iterable[AttemptId]) -> dict[AttemptId, Slots]:
        return {one: Slots(end=END) for one in attempts if one == ATTEMPT}

    found = given(audited(), slots, lambda _run: TaskResults(results={}))

    assert found == TaskResults(results={LOAD: {"rows": 3}}, tables={LOAD: TABLE})


def test_columns_in_history_stay_when_the_next_leader_archives_a_run_without_its_attempts() -> None:
    kept = TaskResults(results={LOAD: {"rows": 3}}, tables={LOAD: TABLE})

    assert given(audited(), lambda _attempts: {}, lambda _run: kept) == kept
