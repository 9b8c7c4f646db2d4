"""Every type of command, with the leader killed before and after each of its steps: done once, never lost.

A step is a request to the store. The leader dies before it arrives, or, if it writes, after it was done and
before the answer is there. A successor takes over, and is killed in its turn, until one is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any, get_args

import pytest

from nimbus.adapters.memory_store import MemoryCluster, MemoryLeaderStore
from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.backfill import BackfillRequest, BackfillState
from nimbus.domain.catalog import PipelineState
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.purge_parts import Part
from nimbus.domain.run import Outcome, Paused, Run, RunState, TaskState
from nimbus.domain.selection import Scope, Selection
from nimbus.domain.settings import ClusterSettings
from nimbus.engine.decision import PrepareRelease, StorePurge
from nimbus.engine.news import News, PurgeStored, ReleasePrepared
from tests.definitions import active, digest_of
from tests.engine_bench import NOW, RUN, WORKER, Bench

KILLS = 20
"""Of each type of command, at least."""
P = PipelineName("p")
A, B, ASKED = TaskName("a"), TaskName("b"), TaskName("asked")
NEW = RunId("new")
SPEC = PipelineSpec(
    name=P,
    tasks=(
        TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"),
        TaskSpec(name=B, kind=TaskKind.PYTHON, script="b.py", needs=(A,)),
        TaskSpec(name=ASKED, kind=TaskKind.APPROVAL, script="", args=("is it good?",)),
    ),
)
NEWER = replace(SPEC, tasks=SPEC.tasks[:1])
START = c.StartRun(pipeline=P, run_id=RUN)
BACKFILL = c.CreateBackfill(
    pipeline=P,
    backfill=BackfillId("b"),
    request=BackfillRequest(
        first=NOW - timedelta(days=3), last=NOW - timedelta(days=1), every=timedelta(days=1)
    ),
)
active(NEWER)  # so that it is on the disk


class KilledError(BaseException):
    """The leader died. Not an Exception, so that nothing in it can go on."""


class Doom:
    """Says at which step of its life each leader dies."""

    def __init__(self, step: int, *, after: bool, leaders: int) -> None:
        self._step, self._after = step, after
        self._left = leaders
        self._steps = 0
        self.kills = 0

    def born(self) -> None:
        """A leader begins."""
        self._steps = 0

    def step(self, *, done: bool) -> None:
        """A request arrives; `done`: it was a write, and its answer is on its way."""
        if not done:
            self._steps += 1
        if self._left and self._steps == self._step and done is self._after:
            self._left -= 1
            self.kills += 1
            raise KilledError


def store_of(doom: Doom) -> type[MemoryLeaderStore]:
    """A store on the way to which leaders die."""

    class Store(MemoryLeaderStore):
        def __init__(self, cluster: MemoryCluster, epoch: int, runs_at_once: int = 250) -> None:
            super().__init__(cluster, epoch, runs_at_once)
            doom.born()

        def _world(self) -> Any:
            doom.step(done=False)
            return super()._world()

        def _commit(self, writes: Sequence[w.Write]) -> None:
            super()._commit(writes)
            doom.step(done=True)

    return Store


Effect = Callable[[w.Write], bool]


@dataclass(frozen=True)
class Case:
    """A command, what is there before it, and the write that does it."""

    command: c.Command
    done: Effect
    before: Callable[[Bench], None] = lambda _bench: None


def run_put(found: Callable[[Run, Run], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutRun) and found(write.before, write.run)


def created(run: RunId) -> Effect:
    return lambda write: isinstance(write, w.CreateRun) and write.run.id == run


def record_put(found: Callable[[Any], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutPipeline) and found(write.record)


def settings_put(found: Callable[[ClusterSettings], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutSettings) and found(write.settings)


def ask(bench: Bench, command: c.Command) -> CommandId:
    key = bench.submit(command, by="ann")
    bench.decide()
    return key


def started(bench: Bench) -> None:
    ask(bench, START)


def paused(bench: Bench) -> None:
    started(bench)
    ask(bench, c.PauseRun(run_id=RUN))


def failed(bench: Bench) -> None:
    started(bench)
    bench.end(AttemptId(RUN, A, 1), Outcome.FAILED)
    bench.decide()


def pooled(bench: Bench) -> None:
    ask(bench, c.SetPool(pool="db", size=2))


def told(bench: Bench) -> None:
    ask(bench, c.SetVariable(name="day", value="1"))


def backfilling(bench: Bench) -> None:
    bench.submit(BACKFILL, by="ann")
    _decide(bench)


def cordoned(bench: Bench) -> None:
    ask(bench, c.CordonWorker(worker=WORKER.id, reason="disk"))


AGAIN = Selection(scope=Scope.FAILED, reuse=RUN, is_rerun=True)
CASES = {
    "publish": Case(
        c.PublishRelease(pipeline=P, digest=digest_of(NEWER)),
        record_put(lambda record: record.published == digest_of(NEWER)),
    ),
    "publish_and_activate": Case(
        c.PublishRelease(pipeline=P, digest=digest_of(NEWER), activate=True),
        record_put(lambda record: record.release == digest_of(NEWER)),
    ),
    "activate": Case(
        c.ActivatePipeline(pipeline=P, digest=digest_of(NEWER)),
        record_put(lambda record: record.release == digest_of(NEWER)),
    ),
    "pause_pipeline": Case(
        c.PausePipeline(pipeline=P), record_put(lambda record: record.state is PipelineState.PAUSED)
    ),
    "remove_pipeline": Case(
        c.RemovePipeline(pipeline=P), lambda write: isinstance(write, w.RemovePipelineRecord)
    ),
    "start": Case(START, created(RUN)),
    "start_selected": Case(replace(START, selection=Selection(scope=Scope.FROM, tasks=(A,))), created(RUN)),
    "rerun": Case(replace(START, run_id=NEW, selection=AGAIN), created(NEW), failed),
    "stop": Case(
        c.StopRun(run_id=RUN, reason="late"),
        run_put(lambda was, run: was.verdict is None and run.verdict is RunState.STOPPED),
        started,
    ),
    "pause": Case(
        c.PauseRun(run_id=RUN), run_put(lambda _, run: run.paused == Paused(by="ann", at=NOW)), started
    ),
    "resume": Case(
        c.ResumeRun(run_id=RUN), run_put(lambda was, run: was.paused is not None and not run.paused), paused
    ),
    "mark": Case(
        c.MarkTask(run_id=RUN, task=B, state="skipped", reason="by hand"),
        run_put(lambda was, run: was.tasks[B].settled is None and run.tasks[B].settled is not None),
        started,
    ),
    "approve": Case(
        c.DecideApproval(run_id=RUN, task=ASKED, approved=True, reason="good"),
        run_put(lambda _, run: run.tasks[ASKED].state is TaskState.SUCCEEDED),
        started,
    ),
    "set_pool": Case(
        c.SetPool(pool="db", size=3), settings_put(lambda settings: settings.pools.get("db") == 3)
    ),
    "remove_pool": Case(
        c.RemovePool(pool="db"), settings_put(lambda settings: "db" not in settings.pools), pooled
    ),
    "set_variable": Case(
        c.SetVariable(name="day", value="1"),
        settings_put(lambda settings: settings.variables == {"day": "1"}),
    ),
    "remove_variable": Case(
        c.RemoveVariable(name="day"), settings_put(lambda settings: not settings.variables), told
    ),
    "cordon": Case(
        c.CordonWorker(worker=WORKER.id, reason="disk"),
        settings_put(lambda settings: WORKER.id in settings.cordoned),
    ),
    "uncordon": Case(
        c.UncordonWorker(worker=WORKER.id),
        settings_put(lambda settings: WORKER.id not in settings.cordoned),
        cordoned,
    ),
    "create_backfill": Case(
        BACKFILL, lambda write: isinstance(write, w.PutBackfill) and write.before is None
    ),
    "pause_backfill": Case(
        c.SteerBackfill(backfill=BACKFILL.backfill, to=BackfillState.PAUSED, reason="late"),
        lambda write: (
            isinstance(write, w.PutBackfill)
            and write.before is not None
            and (write.before.state, write.backfill.state) == (BackfillState.ACTIVE, BackfillState.PAUSED)
        ),
        backfilling,
    ),
    "purge": Case(
        c.PurgeRuns(parts=(Part.LOGS,), reason="space", pipeline=P, before=NOW),
        lambda write: isinstance(write, w.ConsumeCommand),  # storage has its order: see `_decide`
    ),
    "abdicate": Case(c.Abdicate(reason="update"), lambda write: isinstance(write, w.PutAbdication)),
}


def a_bench(case: Case) -> Bench:
    """A leader in the situation of a case."""
    bench = Bench()
    record = active(SPEC, schedule_position=NOW, updated_at=NOW)
    worker = replace(WORKER, newest_schema=2)
    bench.cluster.change(pipelines={P: record}, workers={WORKER.id: worker}, schema=2)
    bench.elect(2)
    case.before(bench)
    return bench


def played(case: Case, doom: Doom) -> list[tuple[w.Write, ...]]:
    """Do a command under leaders that die; all commits since it was asked for."""
    bench = a_bench(case)
    before = len(bench.cluster.commits)
    key = bench.submit(case.command, by="ann")
    for epoch in count(3):
        try:
            bench.effects.clear()
            bench.elect(epoch, store_of(doom))
            _decide(bench)
        except KilledError:
            continue
        break
    assert bench.cluster.world.outcomes[key].code == "ok"
    assert key not in bench.cluster.world.commands
    return bench.cluster.commits[before:]


def _decide(bench: Bench) -> None:
    """Decide until there is nothing more to do; releases are fetched, and purges stored, at once."""
    bench.decide()
    spec = {digest_of(spec): spec for spec in (SPEC, NEWER)}
    while asked := [effect for effect in bench.effects if isinstance(effect, PrepareRelease | StorePurge)]:
        bench.effects.clear()
        told: list[News] = [
            PurgeStored(one.command, None)
            if isinstance(one, StorePurge)
            else ReleasePrepared(one.release, spec[one.release.digest])
            for one in asked
        ]
        bench.reign.hear(told)
        bench.decide()


def killed_everywhere(case: Case, leaders: int) -> int:
    """Play a case with `leaders` that die at each step of their lives. How many died."""
    kills = 0
    for step in count(1):
        before, after = (Doom(step, after=after, leaders=leaders) for after in (False, True))
        for doom in (before, after):
            check(case, played(case, doom))
            kills += doom.kills
        if not before.kills:
            return kills
    raise AssertionError


def check(case: Case, commits: list[tuple[w.Write, ...]]) -> None:
    """The command was consumed once, in the transaction that did it, and nothing did it again."""
    consumed = [writes for writes in commits if any(isinstance(write, w.ConsumeCommand) for write in writes)]
    assert len(consumed) == 1
    assert any(map(case.done, consumed[0]))
    assert sum(case.done(write) for writes in commits for write in writes) == 1


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_command_is_done_once_whenever_the_leader_is_killed(case: Case) -> None:
    kills = 0
    for leaders in count(1):
        kills += killed_everywhere(case, leaders)
        if kills >= KILLS:
            break
    assert kills >= KILLS


def test_every_type_of_command_is_killed() -> None:
    known = {type(case.command) for case in CASES.values()}
    named = {one for part in get_args(c.Command) for one in get_args(part) or (part,)}

    assert named - known == set()
