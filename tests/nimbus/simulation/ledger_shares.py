"""The law of shares: a place goes to the team that has the smallest part of its share, if it wants one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nimbus.domain import writes as w
from nimbus.domain.ids import PipelineName
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.admission import need_of
from nimbus.domain.starts.timing import not_before
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key
from tests.nimbus.simulation import places
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


class ShareLaws:
    """It looks at tasks that want only a slot, and at queued runs for which only the cluster had no room."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.compared = 0
        """How often a team was preferred to another one that waited."""

    def written(self, write: w.CreateRun | w.PutRun | w.RemoveRun, state: State) -> None:
        """Record one write. `state`: of the leader that writes it."""
        if not isinstance(write, w.PutRun):
            return
        before, run = write.before, write.run
        if (before.state, run.state) == (RunState.QUEUED, RunState.RUNNING):
            self._started(before, state)
        for was, task in run.tasks.changes_since(before.tasks):
            if task.open_attempt is not None and (was is None or was.open_attempt is None):
                self._opened(run, task, state)

    def _opened(self, run: Run, opened: TaskRun, state: State) -> None:
        need, team = need_of(opened.spec), self._team(run.pipeline)
        if need.target is not None:
            return
        held, waiting = Counter[str](), set[str]()
        for other in self._live():
            for task in other.tasks.values():
                if task.open_attempt is not None:
                    held[self._team(other.pipeline)] += not task.spec.runs_in_cluster
                elif need_of(task.spec) == need and _wants_only_a_slot(other, task, state):
                    waiting.add(self._team(other.pipeline))
        held[team] -= 1
        self._smallest(team, waiting, held, run, opened.spec.name)

    def _started(self, run: Run, state: State) -> None:
        if not places.can_work(run):
            return  # it only waits, and takes no place
        live = [run if other.id == run.id else other for other in self._live()]
        counted = {other.id: places.top_of(other, live) for other in live if places.works(other)}
        trees = set(counted.values())
        if places.top_of(run, live) in trees:
            return
        held = Counter(
            team
            for team, _ in {
                (self._team(other.pipeline), counted[other.id]) for other in live if other.id in counted
            }
        )
        waiting = {
            self._team(other.pipeline)
            for other in live
            if places.could_start(
                other, live, self._world.ledger.schedules.pipelines, self._world.ledger.settings.holds
            )
            and Key("run", other.id) not in state.work.parked
        }
        self._smallest(self._team(run.pipeline), waiting, held, run, "starts")

    def _smallest(self, team: str, waiting: set[str], held: Counter[str], *about: object) -> None:
        weight_of = self._world.ledger.settings.weight_of
        part = held[team] / weight_of(team)
        for other in waiting - {team}:
            self.compared += 1
            fair = part <= held[other] / weight_of(other)
            hold(Law.SHARES, fair, *about, "of", team, "goes before", other, held)

    def _team(self, pipeline: PipelineName) -> str:
        return self._world.ledger.schedules.pipelines[pipeline].owner or ""

    def _live(self) -> list[Run]:
        return [run for run in self._world.ledger.runs.live.values() if not run.state.is_final]


def _wants_only_a_slot(run: Run, task: TaskRun, state: State) -> bool:
    spec = task.spec
    free = run.max_parallel_tasks is None and not (spec.pools or spec.uses or spec.reads or spec.children)
    parked = {Key("run", run.id), Key("task", run.id, spec.name)} & state.work.parked.keys()
    ready = spec.kind.uses_worker and is_ready(run, task) and not_before(run, task) is None
    return free and ready and not parked
