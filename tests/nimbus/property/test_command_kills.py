"""Every type of command, with the leader killed before and after each step: executed once, never lost.

A step is a request to the store. The leader dies before the request arrives, or, for a write, after it was
executed and before its answer. A successor takes over and is killed, too, until one is not killed.
Real processes on a real ZooKeeper: `tests/nimbus/chaos/test_command_step_kills.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import get_args

import pytest

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.ids import RunId
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import PrepareRelease, StorePurge, StoreVersions
from nimbus.engine.events import Event, ReleasePrepared, StoredForCommand
from nimbus.engine.rules.commands import selections
from tests.nimbus.command_cases import CASES, FIRST, NEWER, SPEC, Case, P, stored
from tests.nimbus.definitions import active, digest_of
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import NOW, WORKER, Bench
from tests.thorough import examples

KILLS = min(20, examples(10))
_ANSWERED = PrepareRelease | StorePurge | StoreVersions
"""Minimum number of kills for each type of command."""
LATEST_S = 1100.0
"""When a command must be decided, on the clock of `Bench`."""
STRIDE = 20 // KILLS
"""Leaders are killed at each step in `make simulate`, at every fourth one in `make test`."""


class KilledError(BaseException):
    """The leader died. Not an Exception, so that the engine cannot catch it."""


class Doom:
    """Chooses the step at which each leader dies."""

    def __init__(self, step: int, *, after: bool, leaders: int) -> None:
        self._step, self._after = step, after
        self._left = leaders
        self._steps = 0
        self.kills = 0

    def born(self) -> None:
        """A leader begins."""
        self._steps = 0

    def step(self, *, done: bool) -> None:
        """A request arrives. `done`: it was an executed write, before its answer arrives."""
        if not done:
            self._steps += 1
        if self._left and self._steps == self._step and done is self._after:
            self._left -= 1
            self.kills += 1
            raise KilledError


def store_of(doom: Doom) -> type[DictLeaderStore]:
    """A store whose requests may kill the leader."""

    class Store(DictLeaderStore):
        def __init__(self, cluster: DictCluster, epoch: int) -> None:
            super().__init__(cluster, epoch)
            self._calls.session.reach = lambda: doom.step(done=False)
            doom.born()

        def _commit(self, writes: Sequence[w.Write]) -> None:
            super()._commit(writes)
            doom.step(done=True)

    return Store


def a_bench(case: Case) -> Bench:
    """A leader in the situation of a case."""
    bench = Bench()
    record = active(SPEC, schedule_position=NOW, updated_at=NOW)
    worker = WORKER
    bench.cluster.change(pipelines={P: record}, workers={WORKER.id: worker})
    bench.elect(2)
    for command in case.before:
        bench.submit(command, by="ann")
        _decide(bench)
    if case.failed:
        bench.end(FIRST, Outcome.FAILED)
        bench.decide()
    return bench


def played(case: Case, doom: Doom) -> list[tuple[w.Write, ...]]:
    """Execute a command with leaders that die. Returns all commits since its submission."""
    bench = a_bench(case)
    before = len(bench.cluster.commits)
    key = bench.submit(case.command, by="ann", if_match=case.if_match)
    for epoch in count(3):
        try:
            bench.effects.clear()
            bench.elect(epoch, store_of(doom))
            _decide(bench)
            while key in bench.cluster.world.commands and bench.clocks.steady_s < LATEST_S:
                bench.clocks.pass_s(0.1)  # a selection rests between two parts
                _decide(bench)
        except KilledError:
            continue
        break
    assert bench.cluster.world.outcomes[key].code == "ok"
    assert key not in bench.cluster.world.commands
    return bench.cluster.commits[before:]


def _decide(bench: Bench) -> None:
    """Decide until nothing is left; releases are fetched, and purges stored, at once."""
    bench.decide()
    spec = {digest_of(spec): spec for spec in (SPEC, NEWER)}
    while asked := [effect for effect in bench.effects if isinstance(effect, _ANSWERED)]:
        bench.effects.clear()
        told: list[Event] = [
            ReleasePrepared(one.release, spec[one.release.digest])
            if isinstance(one, PrepareRelease)
            else StoredForCommand(one.command, None if isinstance(one, StorePurge) else stored(one))
            for one in asked
        ]
        bench.term.apply(told)
        bench.decide()


def killed_everywhere(case: Case, leaders: int) -> int:
    """Run a case with `leaders` that die at each STRIDE-th of their steps. Returns how many died."""
    kills = 0
    for step in count(1, STRIDE):
        before, after = (Doom(step, after=after, leaders=leaders) for after in (False, True))
        for doom in (before, after):
            check(case, played(case, doom))
            kills += doom.kills
        if not before.kills:
            return kills
    raise AssertionError


def check(case: Case, commits: list[tuple[w.Write, ...]]) -> None:
    """Check that the command was executed once, and consumed once, in the same transaction."""
    consumed = [writes for writes in commits if any(map(_answers_it, writes))]
    assert len(consumed) == 1
    assert any(map(case.done, consumed[0]))
    assert sum(case.done(write) for writes in commits for write in writes) == 1


def _answers_it(write: w.Write) -> bool:
    """True for the answer of the command itself, and not of one that a selection has queued."""
    return isinstance(write, w.ConsumeCommand) and write.outcome.command.count("-") == 1


def _is_paused(write: w.PutRun) -> bool:
    return write.run.paused is not None and write.before.paused is None


def test_selection_acts_once_on_each_target_whenever_leaders_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selections, "PARTS_AT_ONCE", 2)
    targets = [c.StartRun(pipeline=P, run_id=RunId(f"p-{n}")) for n in range(5)]
    case = Case(
        c.ActOnSelection(
            action="pause",
            of="runs",
            targets={**{str(start.run_id): str(P) for start in targets}, "gone": str(P)},
            reason="many",
        ),
        done=lambda _: True,
        before=tuple(targets),
    )
    kills = 0
    for step in count(1, STRIDE):
        before, *_ = dooms = [Doom(step, after=after, leaders=2) for after in (False, True)]
        for doom in dooms:
            commits = played(case, doom)
            writes = [write for commit in commits for write in commit]
            paused = [write.run.id for write in writes if isinstance(write, w.PutRun) and _is_paused(write)]
            parts = [one for one in writes if isinstance(one, w.ConsumeCommand) and not _answers_it(one)]
            assert sorted(paused) == [start.run_id for start in targets]
            assert sorted(one.outcome.code for one in parts) == ["ok"] * 5 + ["unknown_run"]
            kills += doom.kills
        if not before.kills:
            break
    assert kills >= KILLS


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
