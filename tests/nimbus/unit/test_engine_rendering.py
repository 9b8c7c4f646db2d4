"""Tasks whose templates use results of other tasks: rendered when the task is ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import SetVariable, StartRun, StopRun
from nimbus.domain.data.outputs import committed_results
from nimbus.domain.ids import AttemptId, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.decision import Effect, Refusal, RenderTask
from nimbus.engine.events import RenderingFailed, TaskRendered
from nimbus.ports import StoreUnavailableError
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NAME, NOW, RUN, WORKER, Bench

PLAN, LOAD, LAST = TaskName("plan"), TaskName("load"), TaskName("last")
LOADS = AttemptId(RUN, LOAD, 1)
templates = Templates()


def spec(**load: Any) -> PipelineSpec:
    fields: dict[str, Any] = {"args": ("{{ tasks.plan.result.since }}", "{{ params.x }}"), "reads": (PLAN,)}
    return PipelineSpec(
        name=NAME,
        tasks=(
            TaskSpec(name=PLAN, kind=TaskKind.PYTHON, script="plan.py"),
            TaskSpec(name=LOAD, kind=TaskKind.PYTHON, script="load.py", needs=(PLAN,), **fields | load),
            TaskSpec(name=LAST, kind=TaskKind.PYTHON, script="last.py", needs=(LOAD,)),
        ),
    )


def begun(spec: PipelineSpec, **variables: str) -> Bench:
    """A run of such a pipeline, whose first task is running."""
    bench = Bench()
    record = active(replace(spec, parameters={}), schedule_position=NOW, updated_at=NOW)
    worker = WORKER
    bench.cluster.change(pipelines={NAME: record}, workers={worker.id: worker})
    bench.cluster.change(settings=ClusterSettings(variables=variables))
    bench.elect(2)
    bench.submit(StartRun(pipeline=NAME, run_id=RUN))
    bench.decide()
    return bench


def give(bench: Bench, result: dict[str, Any] | None) -> None:
    """The first task succeeds with a result."""
    attempt = AttemptId(RUN, PLAN, 1)
    end = End(attempt=str(attempt), outcome=Outcome.SUCCEEDED, written_by="t", ended_at=NOW, result=result)
    slots = bench.cluster.world.slots[attempt]
    bench.cluster.set_slots(attempt, replace(slots, end=end))
    bench.decide()


def asked(bench: Bench) -> list[Effect]:
    return [effect for effect in bench.effects if isinstance(effect, RenderTask)]


def render(bench: Bench, effect: Effect) -> None:
    """Render like the effects' thread, and send the event."""
    assert isinstance(effect, RenderTask)
    read = committed_results(effect.run, effect.run.tasks[effect.task].spec.reads, bench.slots_of)
    try:
        result: TaskSpec | Refusal = templates.render_task(effect.run, effect.task, read)
    except TemplateError as exc:
        result = Refusal(exc.code, str(exc))
    bench.term.apply((TaskRendered(effect.run.id, effect.task, result),))
    bench.decide()


def ordered(bench: Bench, attempt: AttemptId) -> tuple[str, ...]:
    """Arguments in an attempt's order."""
    (order,) = [order for key, order in bench.cluster.world.orders.items() if key[1] == attempt]
    return order.task.args


def test_task_gets_the_result_of_one_it_needs_when_it_becomes_ready() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}", "{{ ds }}")))
    assert asked(bench) == []

    give(bench, {"since": "2026-01-01"})
    (effect,) = asked(bench)
    assert LOADS not in bench.term.state.attempts.slots
    render(bench, effect)

    assert ordered(bench, LOADS) == ("2026-01-01", "2026-03-01")
    assert bench.run().tasks[LOAD].spec.args == ("{{ tasks.plan.result.since }}", "{{ ds }}")


def test_attempts_of_a_task_get_the_same_texts_when_another_leader_opens_the_second() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}",)))
    give(bench, {"since": 7})
    render(bench, asked(bench)[-1])
    bench.claim(LOADS)
    bench.end(LOADS, Outcome.LOST)
    bench.elect(3)
    bench.decide()
    bench.clocks.pass_s(60)
    bench.decide()
    render(bench, asked(bench)[-1])

    assert ordered(bench, AttemptId(RUN, LOAD, 2)) == ("7",)


def test_task_is_rendered_again_when_the_leader_that_asked_is_gone() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}",)))
    give(bench, {"since": 7})
    bench.elect(3)
    bench.decide()

    assert len(asked(bench)) == 2
    render(bench, asked(bench)[-1])
    assert ordered(bench, LOADS) == ("7",)


def test_task_fails_with_the_text_when_its_template_cannot_be_rendered() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.nothing }}",)))
    give(bench, {"since": 7})
    render(bench, asked(bench)[-1])

    run = bench.run()
    assert (run.state, run.tasks[LOAD].state, run.tasks[LOAD].attempts) == (
        RunState.FAILED,
        TaskState.FAILED,
        (),
    )
    settled = run.tasks[LOAD].settled
    assert settled is not None
    assert "has no attribute 'nothing'" in settled.reason
    assert run.tasks[LAST].state is TaskState.NOT_RUN


@pytest.mark.parametrize(("rows", "state"), [(0, TaskState.SKIPPED), (3, TaskState.RUNNING)])
def test_condition_about_a_result_is_decided_when_the_task_becomes_ready(rows: int, state: TaskState) -> None:
    bench = begun(spec(args=(), when="{{ tasks.plan.result.rows > 0 }}"))
    give(bench, {"rows": rows})
    render(bench, asked(bench)[-1])

    run = bench.run()
    assert run.tasks[LOAD].state is state
    assert run.state is (RunState.SUCCEEDED if state is TaskState.SKIPPED else RunState.RUNNING)


def test_default_stands_for_the_result_when_the_task_gave_none() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.rows | default(5) }}",)))
    give(bench, None)
    render(bench, asked(bench)[-1])

    assert ordered(bench, LOADS) == ("5",)


def test_text_of_a_result_is_not_rendered_when_it_looks_like_a_template() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}",)))
    give(bench, {"since": "{{ ds }}"})
    render(bench, asked(bench)[-1])

    assert ordered(bench, LOADS) == ("{{ ds }}",)


def test_task_waits_and_its_run_is_parked_when_the_helper_cannot_be_had() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}",)))
    give(bench, {"since": 7})
    bench.term.apply((RenderingFailed(RUN, LOAD, StoreUnavailableError("it is away")),))
    bench.decide()
    assert len(asked(bench)) == 1
    bench.clocks.pass_s(61)
    bench.term.tend()
    bench.decide()

    assert len(asked(bench)) == 2
    render(bench, asked(bench)[-1])
    assert ordered(bench, LOADS) == ("7",)


def test_late_answer_changes_nothing_when_the_run_was_stopped_meanwhile() -> None:
    bench = begun(spec(args=("{{ tasks.plan.result.since }}",)))
    give(bench, {"since": 7})

    bench.submit(StopRun(run_id=RUN, reason="enough"))
    bench.decide()
    render(bench, asked(bench)[-1])

    assert bench.run().state is RunState.STOPPED
    assert bench.term.state.tasks.renderings.results == {}


def test_run_keeps_the_variables_that_it_was_made_with() -> None:
    bench = begun(
        replace(spec(args=("{{ vars.dwh }} {{ tasks.plan.result.x }}",)), variables=("dwh",)),
        dwh="one",
        other="2",
    )
    bench.submit(SetVariable(name="dwh", value="two"))
    give(bench, {"x": 3})
    render(bench, asked(bench)[-1])

    assert bench.run().variables == {"dwh": "one"}
    assert ordered(bench, LOADS) == ("one 3",)


def test_run_is_refused_when_a_variable_that_it_takes_is_not_set() -> None:
    bench = begun(replace(spec(), variables=("dwh",)))

    (outcome,) = bench.cluster.world.outcomes.values()
    assert not outcome.accepted
    assert "there is no variable vars.dwh: `nimbus var set dwh VALUE`" in outcome.message
