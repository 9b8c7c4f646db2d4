"""The order of workers follows each change of what they refuse, whoever has the order of the attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.domain.attempts.workers import Refusals
from nimbus.domain.ids import AttemptId, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import TaskKind, TaskSpec
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.starts.admission import Need, by_rank
from nimbus.engine.workers import Workers
from tests.nimbus.engine_bench import WORKER

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FIRST, REAPER, OTHER = (replace(WORKER, id=WorkerId(name)) for name in ("w1", "w2", "w3"))
SPEC = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py")


def test_worker_whose_attempt_another_one_reaped_is_ranked_when_its_refusals_end() -> None:
    workers = Workers()
    workers.refusals = {FIRST.id: Refusals(3, NOW)}
    workers.register([FIRST, REAPER, OTHER])
    attempt = AttemptId(RunId("r"), SPEC.name, 1)
    workers.opened(attempt, REAPER.id, Need(schema=1, java=False))
    ended = Attempt(
        number=1,
        worker=FIRST.id,
        reaper=REAPER.id,
        opened_at=NOW,
        opened_by_epoch=1,
        ended_at=NOW + timedelta(seconds=1),
        outcome=Outcome.SUCCEEDED,
    )

    assert workers.note_ended(TaskRun(spec=SPEC, state=TaskState.SUCCEEDED, attempts=(ended,)))
    workers.closed(attempt)

    assert workers.refusals == {}
    assert list(workers.free) == by_rank(workers.registered.values(), {}, {})
