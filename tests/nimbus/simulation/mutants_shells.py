"""Bugs of the processes that run attempts, and of the workers that look after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from nimbus.attempt.model import ClaimHolder
from nimbus.domain.attempts.slots import Claim
from nimbus.worker import settlement
from nimbus.worker.application import submitted
from nimbus.worker.application.manager import DriverState
from tests.nimbus.attempts import mutants as core
from tests.nimbus.simulation import shell
from tests.nimbus.simulation.applications import Applications
from tests.nimbus.simulation.host import Folder
from tests.nimbus.simulation.mutant import MUTANTS, mutant, replaced
from tests.nimbus.simulation.processes import Executor, PooledShell, Runner
from tests.nimbus.simulation.shell import Shell
from tests.nimbus.simulation.worker import Worker, _OfHost

for name in (
    "success_after_the_order_to_end",
    "end_before_the_flush",
    "start_with_an_old_claim",
    "claim_of_another_is_taken_for_ours",
    "flush_before_the_last_process_ended",
    "running_driver_is_left",
):
    MUTANTS[name] = core.MUTANTS[name]


@mutant
def full_disk_keeps_the_record_from_being_written() -> Iterator[None]:
    """The room for the record is not reserved."""
    original = Folder.record_exit

    def record_exit(self: Folder, end: Any) -> None:
        if not self.host.full:
            original(self, end)

    with replaced(Folder, record_exit=record_exit):
        yield


@mutant
def record_only_in_memory() -> Iterator[None]:
    """An executor fills END, and writes the record of the exit later."""
    with replaced(PooledShell, _put_end=Shell._put_end):
        yield


def _same_worker(standing: Claim | None, ours: Claim) -> ClaimHolder:
    if standing is None:
        return ClaimHolder.NONE
    return ClaimHolder.OURS if standing.worker == ours.worker else ClaimHolder.OTHER


@mutant
def second_claim_after_a_kill() -> Iterator[None]:
    """A restarted worker launches what it finds, and a claim of its earlier runner counts as ours."""
    original = Worker.start_again

    def start_again(self: Worker) -> None:
        original(self)
        self._phases.clear()

    changes: dict[str, Any] = {"start_again": start_again, "_was_launched": lambda *_: False}
    with replaced(Worker, **changes), replaced(shell, holder_of=_same_worker):
        yield


@mutant
def driver_is_started_though_its_record_is_on_the_disk() -> Iterator[None]:
    """A successor does not look for the record before it launches the attempt again."""
    original = Worker._settle

    def settle(self: Worker, folder: Folder) -> None:
        if folder.record is not None and not folder.delivered and not folder.is_pooled:
            Runner(self.host, folder)
        else:
            original(self, folder)

    with replaced(Worker, _settle=settle), replaced(shell, holder_of=_same_worker):
        yield


@mutant
def lost_though_its_record_is_on_the_disk() -> Iterator[None]:
    """A worker sees that the runner is dead, and not how the driver ended."""
    original = Worker._settle

    def settle(self: Worker, folder: Folder) -> None:
        if not folder.delivered:
            folder.record = None
        original(self, folder)

    with replaced(Worker, _settle=settle):
        yield


@mutant
def lost_before_the_last_process_is_killed() -> Iterator[None]:
    """The next attempt writes beside what is left of this one."""
    with replaced(Folder, kill_rest=lambda self: None):
        yield


@mutant
def living_runner_is_taken_for_dead() -> Iterator[None]:
    """A worker that is asked to look for a driver looks at the silence alone."""
    from nimbus.worker.executor import Sight

    with replaced(_OfHost, probe=lambda *_: Sight.GONE):
        yield


@mutant
def refused_without_a_look_at_the_claim() -> Iterator[None]:
    """The runner is dead, so its attempt counts as never started."""

    def ending(self: Worker, folder: Folder) -> Any:
        why = "its runner died"
        return settlement.ended(str(folder.attempt), shell.Outcome.REFUSED, why, self.world.worker_now())

    with replaced(Worker, _ending_of_the_dead=ending):
        yield


@mutant
def death_of_the_zygote_is_not_noticed() -> Iterator[None]:
    """An executor sends heartbeats for drivers that are gone."""

    def kill_starter(self: Executor) -> None:
        for one in self.shells:
            one.driver.die(remains=False)

    with replaced(Executor, kill_starter=kill_starter):
        yield


@mutant
def lost_though_another_process_has_the_claim() -> Iterator[None]:
    """A worker ends each attempt of a dead executor, also one that it never claimed."""

    def lost(self: Worker, folder: Folder) -> Any:
        claim = self.world.zookeeper.read(folder.attempt).claim
        return settlement.lost(str(folder.attempt), claim, "its executor died", self.world.worker_now())

    with replaced(Worker, _lost=lost):
        yield


@mutant
def end_of_a_dead_runner_is_not_written() -> Iterator[None]:
    """A worker counts an attempt as settled before END is filled."""
    with replaced(settlement, put_end=lambda *_: "later"):
        yield


# -- drivers in a cluster


def _follow(change: Callable[[submitted.Observed], submitted.Action | None]) -> Iterator[None]:
    """With a follower that asks `change` first."""
    original = submitted.decide

    def decide(seen: submitted.Observed, **limits: float) -> submitted.Action:
        changed = change(seen)
        return original(seen, **limits) if changed is None else changed

    with replaced(submitted, decide=decide):
        yield


@mutant
def silent_gateway_is_taken_for_a_lost_driver() -> Iterator[None]:
    """A follower that does not hear a driver ends its attempt, without a word of the cluster."""

    def change(seen: submitted.Observed) -> submitted.Action | None:
        was_heard = seen.slots.claim is not None and seen.heard_for_s != shell.m.NEVER_S
        is_silent = seen.slots.end is None and was_heard and seen.heard_for_s > submitted.HEARD_S
        return submitted.EndAs("it is not heard") if is_silent else None

    yield from _follow(change)


@mutant
def cluster_without_an_answer_is_taken_for_a_lost_driver() -> Iterator[None]:
    """The manager restarts, and each of its drivers counts as gone."""

    def change(seen: submitted.Observed) -> submitted.Action | None:
        unknown = seen.report is not None and seen.report.state is DriverState.UNKNOWN
        return submitted.EndAs("it is gone") if unknown and seen.slots.end is None else None

    yield from _follow(change)


@mutant
def driver_that_is_gone_has_succeeded() -> Iterator[None]:
    """The cluster says "finished", so it counts as a success."""
    original = settlement.lost

    def lost(*args: Any, **more: Any) -> Any:
        end = original(*args, **more)
        return replace(end, outcome=shell.Outcome.SUCCEEDED) if "from the cluster" in end.reason else end

    with replaced(settlement, lost=lost):
        yield


@mutant
def driver_is_forgotten_at_its_end() -> Iterator[None]:
    """END is there, so nobody looks if the driver ends."""
    yield from _follow(lambda seen: None if seen.slots.end is None else submitted.StopFollowing())


@mutant
def submission_without_an_answer_is_repeated() -> Iterator[None]:
    """Two drivers wait in the cluster."""

    def close(self: Applications, attempt: Any) -> None:
        del self._records[attempt]
        self._worker._phases.pop(attempt, None)

    with replaced(Applications, _close_unknown=close):
        yield
