"""Pipelines whose tasks start child runs, and a leader that decides about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, cast

from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.commands import Command, QueuedCommand, StartRun
from nimbus.domain.data.reads import ReadError
from nimbus.domain.ids import AttemptId, CommandId, HostId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.writes import CreateRun, PutRun
from nimbus.engine.decision import BuildRun, Decision, FindVersions, Refusal, RenderTask
from nimbus.engine.history_lookups import EarlierRuns, found_versions, with_items
from nimbus.engine.policy import Policy
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key
from nimbus.ports import History
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError
from tests.nimbus.definitions import active, built

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PARENT, CHILD = PipelineName("parent"), PipelineName("load")
LOAD = PipelineSpec(
    name=CHILD,
    parameters={
        "region": ParameterSpec(type="string", default="none"),
        "shard": ParameterSpec(type="integer", default=0, maximum=9),
    },
    tasks=(TaskSpec(name=TaskName("x"), kind=TaskKind.PYTHON, script="x.py", args=("{{ params.region }}",)),),
)
_numbers = count()
TEMPLATES = Templates()


def starting(pipeline: PipelineName = CHILD, **said: Any) -> ChildSpec:
    """The child run that a task starts, with parameters of each item if it has `for_each`."""
    parameters = {name: f"{{{{ item.{name} }}}}" for name in said.get("for_each", {})}
    return ChildSpec(pipeline=pipeline, **{"parameters": parameters} | said)


def parent(children: ChildSpec, name: PipelineName = PARENT, **more: Any) -> PipelineSpec:
    """A pipeline with one task that starts child runs, and one that needs it."""
    task = TaskSpec(name=TaskName("fan"), kind=TaskKind.PIPELINE, script="", children=children, **more)
    after = TaskSpec(name=TaskName("after"), kind=TaskKind.PYTHON, script="x.py", needs=(TaskName("fan"),))
    return PipelineSpec(name=name, tasks=(task, after))


class Stage:
    """A leader's state with some pipelines. Runs are built at once."""

    def __init__(self, *specs: PipelineSpec, max_running: int | None = None, slots: int = 100) -> None:
        self.now = NOW
        self.state = State(epoch=3, schema=1, policy=Policy(max_running=max_running))
        worker = WorkerInfo(
            id=WorkerId("w"),
            host=HostId("h"),
            hostname="h",
            pid=1,
            slots=slots,
            version="1",
            started_at=NOW,
            reported_at=NOW,
        )
        self.state.put_workers([worker], self.instant())
        for spec in specs:
            self.put(spec)
        self.state.finish_loading()
        self.done: list[Decision] = []
        self.results: dict[TaskName, dict[str, Any]] = {}
        """Results of tasks."""
        self.slots: dict[AttemptId, Slots] = {}
        """Of ended attempts."""
        self.files: dict[tuple[str, str], bytes] = {}
        """Files of outputs, by attempt and path."""

    def instant(self) -> Instant:
        return Instant(self.now, (self.now - NOW).total_seconds())

    def put(self, spec: PipelineSpec, **changes: Any) -> None:
        """Make a definition active."""
        self.state.put_pipeline(active(spec, schedule_position=NOW, updated_at=NOW, **changes))

    def ask(self, *commands: Command) -> None:
        """Submit commands, and decide until nothing is left to decide."""
        for command in commands:
            number = CommandId(f"cmd-{next(_numbers)}")
            self.state.commands.put(QueuedCommand(id=number, command=command, submitted_at=NOW))
        self.decide()

    def start(self, run: str = "r", pipeline: PipelineName = PARENT, **more: Any) -> None:
        """Start a run."""
        self.ask(StartRun(pipeline=pipeline, run_id=RunId(run), **more))

    def decide(self) -> None:
        """Decide until nothing is left to decide."""
        self.state.wake(self.instant())
        while (key := next_key(self.state)) is not None:
            answer = ask(self.state, key, self.instant())
            if not isinstance(answer, Decision):
                self.state.postpone(key, answer)
                continue
            self.state.apply(answer, self.instant())
            self.done.append(answer)
            for effect in answer.effects:
                if isinstance(effect, BuildRun):
                    self.state.run_built(effect.key, built(effect, self._written()).built)
                elif isinstance(effect, RenderTask):
                    self._render(effect)
                elif isinstance(effect, FindVersions):
                    self._find(effect)

    def _render(self, effect: RenderTask) -> None:
        try:
            spec = TEMPLATES.render_task(effect.run, effect.task, self.results)
            found: TaskSpec | Refusal = with_items(spec, effect.run, self._opened)
        except TemplateError as exc:
            found = Refusal(exc.code, str(exc))
        self.state.tasks.renderings.under_way.add(Key("rendering", effect.run.id, effect.task))
        self.state.tasks.task_rendered(effect.run.id, effect.task, found)

    def _opened(self, output: str, path: str) -> Iterator[bytes] | None:
        content = self.files.get((output, path))
        return None if content is None else iter([content])

    def _find(self, effect: FindVersions) -> None:
        no_history = cast(History, None)
        earlier = EarlierRuns(self._written().get, self._slots_of, no_history)
        try:
            found: Any = found_versions(effect.asked, no_history, partial(earlier.parts, effect.run))
        except ReadError as exc:
            found = Refusal(exc.code, str(exc))
        self.state.tasks.versions_found(effect.run.id, effect.task, found)

    def _slots_of(self, attempts: Iterable[AttemptId]) -> dict[AttemptId, Slots]:
        return {one: self.slots[one] for one in attempts}

    def children(self, of: str = "r") -> list[Run]:
        """Live child runs."""
        live = self.state.runs.live.values()
        found = [run for run in live if run.parent is not None and run.parent.run == of]
        return sorted(found, key=lambda run: run.parent.index if run.parent else 0)

    def end(self, run: Run, outcome: Outcome = Outcome.SUCCEEDED, **result: Any) -> None:
        """End all open attempts of a run, then decide."""
        for attempt in self.state.runs.live[run.id].open_attempts():
            ended = End(attempt=str(attempt), outcome=outcome, reason="", written_by="r", ended_at=self.now)
            self.slots[attempt] = Slots(end=replace(ended, output=str(attempt), result=result or None))
            self.state.attempts.put_slots(attempt, self.slots[attempt], self.instant())
        self.decide()

    def run(self, name: str = "r") -> Run:
        """A run as it was written last."""
        return self._written()[RunId(name)]

    def _written(self) -> dict[RunId, Run]:
        return {
            write.run.id: write.run
            for decision in self.done
            for write in decision.writes
            if isinstance(write, CreateRun | PutRun)
        }

    def fan(self, name: str = "r") -> str:
        """The states of the items of a run's task."""
        children = self.run(name).tasks[TaskName("fan")].children
        return "" if children is None else children.states
