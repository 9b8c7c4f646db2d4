"""A leader that kills its process at one step of executing a command: see `test_command_step_kills`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from leader import Leadership
from leader.sentinel.sentinel import CrashSentinel
from nimbus.adapters.store.calls import Calls, calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.runs import read_run
from nimbus.domain import writes as w
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import CommandId
from nimbus.engine.decision import Effect, StorePurge, StoreVersions
from nimbus.engine.events import StoredForCommand
from nimbus.ports import LeaderStore
from tests.benchmark.engine.engine_role import EngineRole
from tests.nimbus.chaos.forked_leaders import Notes
from tests.nimbus.command_cases import CASES, NEWER, SPEC, Case, stored
from tests.nimbus.definitions import built, digest_of
from tests.nimbus.leader_writes import RecordedTransaction

_READS = ("get", "children", "read_all", "read_watched", "list_and_read", "await_all")


class Steps:
    """Counts a leader's steps from some moment on, and kills its process at one: a request to the store, or
    the answer to one that wrote.
    """

    def __init__(self, leader: str, case: Case, step: int, notes: Notes) -> None:
        self.case = case
        self._leader, self._step, self._notes = leader, step, notes
        self._count: int | None = None

    def begin(self) -> None:
        """Count from now on."""
        if self._count is None:
            self._count = 0

    def take(self, step: str) -> None:
        """Count the next step."""
        if self._count is None:
            return
        self._count += 1
        if self._count == self._step:
            self._notes.die(self._leader, step)

    def written(self, names: str, writes: Sequence[w.Write]) -> None:
        """A transaction was committed."""
        consumed = sum(isinstance(write, w.ConsumeCommand) for write in writes)
        done = sum(self.case.done(write) for write in writes)
        if self._count is not None and (consumed or done):
            self._notes.add(self._leader, consumed=consumed, done=done)
        self.take(f"after {names}")
        if self._count is not None and consumed:
            self._step = 0
            self._notes.add(self._leader, over=True)

    def leads(self) -> None:
        """The first turn of a leader is over."""
        self._notes.add(self._leader, leads=True)


class CountedCalls:
    """A session's calls; each read is a step."""

    def __init__(self, calls: Calls, steps: Steps) -> None:
        self._calls, self._steps = calls, steps

    def __getattr__(self, name: str) -> Any:
        if name in _READS:
            self._steps.take(f"before {name}")
        return getattr(self._calls, name)


class CountedTransaction(RecordedTransaction):
    """A transaction whose request is one step and whose response is another."""

    steps: Steps

    def commit(self) -> None:
        if not self.writes:
            return
        names = "+".join(sorted({type(write).__name__ for write in self.writes}))
        self.steps.take(f"before {names}")
        super().commit()
        self.steps.written(names, self.writes)


class CountedStore(TreeLeaderStore):
    """Counts a leader's steps."""

    steps: Steps

    def count(self, steps: Steps) -> None:
        self.steps = steps
        self._calls = CountedCalls(self._calls, steps)  # type: ignore[assignment]

    def begin(self) -> RecordedTransaction:
        made = CountedTransaction(self._write, self._operations)
        made.steps = self.steps
        return made

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        found = super().read_commands(known, most)
        if any(queued.command == self.steps.case.command for queued in found):
            self.steps.begin()
        return found


class CountedRole(EngineRole):
    """Leads until it kills itself. The crash sentinel ends its session at once."""

    def __init__(self, hosts: str, root: str, name: str, steps: Steps) -> None:
        self._steps = steps
        super().__init__(hosts, root, name, session_timeout=timedelta(seconds=60))
        self._specs = {digest_of(spec): spec for spec in (SPEC, NEWER)}

    def _store(self, leadership: Leadership) -> LeaderStore:
        store = CountedStore(calls_on(self.session), self._root, leadership.token)
        store.count(self._steps)
        return store

    def _build(self, effect: Any) -> None:
        selection = effect.draft.selection
        earlier = {}
        if selection is not None and selection.reuse is not None:
            run = read_run(calls_on(self.session), Paths(self._root), selection.reuse)
            assert run is not None
            earlier[run.id] = run
        self.engine.enqueue(built(effect, earlier))

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, StorePurge):
            self.engine.enqueue(StoredForCommand(effect.command, None))
        elif isinstance(effect, StoreVersions):
            self.engine.enqueue(StoredForCommand(effect.command, stored(effect)))
        else:
            super()._effect(effect)

    def _status(self) -> None:
        if self.engine.status.recovered_at is not None and not self._recovered_ns:
            self._steps.leads()
        super()._status()


def lead(*, hosts: str, root: str, name: str, case: str, step: int, from_birth: bool, notes: str) -> None:
    """Queue for the lead; die at a step, counted from the first one or from when the command was read."""
    steps = Steps(name, CASES[case], step, Notes(Path(notes)))
    if from_birth:
        steps.begin()
    role = CountedRole(hosts, root, name, steps)
    CrashSentinel(role.session).start()
    role.election.add_to_leader_lock_queue()
