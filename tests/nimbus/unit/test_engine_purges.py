"""Commands that request a purge: answered when storage has the request."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.commands import NoteRun, PurgeRuns, StartRun
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.purge import PurgeOrder, RunNote
from nimbus.domain.runs.run import RunPart
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import Refusal, StorePurge
from nimbus.engine.events import StoredForCommand
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NOW, RUN, WORKER, Bench

P, A = PipelineName("p"), TaskName("a")
SPEC = PipelineSpec(name=P, tasks=(TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"),))
OLD = PurgeRuns(parts=(RunPart.LOGS,), reason="space", run_id=RunId("old"))


def a_bench() -> Bench:
    bench = Bench()
    record = active(SPEC, schedule_position=NOW, updated_at=NOW)
    bench.cluster.change(pipelines={P: record}, workers={WORKER.id: WORKER})
    bench.elect(2)
    return bench


def asked(bench: Bench, command: PurgeRuns = OLD) -> CommandId:
    key = bench.submit(command, by="ann")
    bench.decide()
    return key


def code(bench: Bench, key: CommandId) -> str | None:
    outcome = bench.cluster.world.outcomes.get(key)
    return None if outcome is None else outcome.code


def test_purge_is_answered_once_storage_has_it() -> None:
    bench = a_bench()

    key = asked(bench)

    assert bench.effects == [StorePurge(key, PurgeOrder(what=OLD, at=NOW, by="ann"))]
    assert code(bench, key) is None
    bench.term.apply([StoredForCommand(key, None)])
    bench.decide()
    outcome = bench.cluster.world.outcomes[key]
    assert (outcome.code, outcome.submitted_by) == ("ok", "ann")
    assert outcome.message == "logs of run old will be deleted; what later runs reuse stays"
    assert len(bench.effects) == 1


def test_answer_to_a_purge_names_all_parts() -> None:
    bench = a_bench()
    key = asked(bench, replace(OLD, parts=tuple(RunPart)))

    bench.term.apply([StoredForCommand(key, None)])
    bench.decide()

    assert bench.cluster.world.outcomes[key].message.startswith(
        "logs, outputs and history of run old will be"
    )


def test_purge_is_refused_when_storage_says_so() -> None:
    bench = a_bench()
    key = asked(bench)

    bench.term.apply([StoredForCommand(key, Refusal("unknown_run", "it is nowhere"))])
    bench.decide()

    assert code(bench, key) == "unknown_run"


def test_successor_stores_a_purge_again_that_was_not_answered() -> None:
    bench = a_bench()
    key = asked(bench)
    bench.effects.clear()

    bench.elect(3)
    bench.decide()

    assert [effect.command for effect in bench.effects if isinstance(effect, StorePurge)] == [key]


def test_purge_of_a_run_that_is_in_zookeeper_is_refused() -> None:
    bench = a_bench()
    bench.submit(StartRun(pipeline=P, run_id=RUN))
    bench.decide()
    purge = PurgeRuns(parts=(RunPart.LOGS,), reason="space", run_id=RUN)
    assert code(bench, asked(bench, purge)) == "run_live"

    bench.end(AttemptId(RUN, A, 1), Outcome.SUCCEEDED)
    bench.decide()

    assert code(bench, asked(bench, purge)) == "run_live"
    assert not any(isinstance(effect, StorePurge) for effect in bench.effects)


def test_note_about_an_ended_run_is_answered_once_storage_has_it() -> None:
    bench = a_bench()
    note = NoteRun(run_id=RunId("old"), pipeline=P, text="known, ticket 12", task=TaskName("a"))
    key = bench.submit(note, by="ann")
    bench.decide()

    assert bench.effects == [StorePurge(key, RunNote(what=note, at=NOW, by="ann"))]
    assert code(bench, key) is None
    bench.term.apply([StoredForCommand(key, None)])
    bench.decide()
    outcome = bench.cluster.world.outcomes[key]
    assert (outcome.code, outcome.message) == ("ok", "task a of run old: known, ticket 12")
    assert outcome.names == {"run": "old", "task": "a"}


def test_note_about_a_live_run_is_refused() -> None:
    bench = a_bench()
    bench.submit(StartRun(pipeline=P, run_id=RUN))
    bench.decide()
    key = bench.submit(NoteRun(run_id=RUN, pipeline=P, text="known"))
    bench.decide()

    assert code(bench, key) == "run_live"
    assert not bench.effects
