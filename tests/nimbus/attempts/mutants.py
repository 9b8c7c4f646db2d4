"""Faults built into the core, one at a time. The laws must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nimbus.attempt import life, machine
from nimbus.attempt import model as m
from nimbus.attempt.life import Life, Pace
from nimbus.attempt.machine import Transition
from nimbus.attempt.model import NEVER_S, ClaimHolder, Ordered, Story
from tests.nimbus.simulation.mutant import replaced

MUTANTS: dict[str, Callable[[], Any]] = {}


def mutant(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
    MUTANTS[function.__name__] = made = contextmanager(function)
    return made


def _step(change: Callable[..., Transition | None]) -> Iterator[None]:
    """With a state machine that asks `change` first."""
    original = machine.step

    def step(state: Any, event: Any, terms: Any, now_s: float) -> Transition:
        changed = change(state, event, terms, now_s)
        return original(state, event, terms, now_s) if changed is None else changed

    with replaced(machine, step=step):
        yield


@mutant
def success_after_the_order_to_end() -> Iterator[None]:
    """Exit status 0 counts, though the code had not come to its end."""
    with replaced(Story, is_success=lambda self, _terms: self.status == 0 and not self.refused):
        yield


@mutant
def mark_is_read_after_the_end() -> Iterator[None]:
    """What the driver does after it was told to end counts."""
    original = machine._exited
    with replaced(machine, _exited=lambda s, e: original(machine.replace(s, was_done=e.is_done), e)):
        yield


@mutant
def end_before_the_flush() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Clearing) and isinstance(event, m.Cleared):
            return Transition(m.Recording(), (m.Record(state.story), m.Commit()))
        return None

    yield from _step(change)


@mutant
def flush_before_the_last_process_ended() -> Iterator[None]:
    def change(state: Any, event: Any, terms: Any, _: float) -> Transition | None:
        if isinstance(state, m.Running) and isinstance(event, m.Exited) and not event.fault:
            story = machine._exited(state, event).state.story  # type: ignore[union-attr]
            if story.is_success(terms):
                return Transition(m.Committing(story), (m.Commit(),))
        return None

    yield from _step(change)


@mutant
def record_while_the_driver_waits() -> Iterator[None]:
    with replaced(machine, _preparing=_without_clear(machine._preparing)):
        yield


def _without_clear(original: Callable[..., Transition]) -> Callable[..., Transition]:
    def preparing(*args: Any) -> Transition:
        after = original(*args)
        return machine._end(after.state.story) if isinstance(after.state, m.Clearing) else after

    return preparing


@mutant
def failed_flush_is_a_success() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Committing) and isinstance(event, m.Committed):
            return machine._end(state.story)
        return None

    yield from _step(change)


@mutant
def end_before_the_record() -> Iterator[None]:
    """A crash in between loses how it ended."""
    with replaced(machine, _end=lambda story: Transition(m.Delivering(), (m.PutEnd(), m.Record(story)))):
        yield


@mutant
def second_claim() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.AwaitingClaim) and isinstance(event, m.LeaveAsked):
            return Transition(state, (m.PutClaim(),))
        return None

    yield from _step(change)


@mutant
def claim_of_another_is_taken_for_ours() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.AwaitingClaim) and isinstance(event, m.ClaimAnswered):
            return Transition(m.Preparing(NEVER_S), (m.Prepare(),))
        return None

    yield from _step(change)


@mutant
def start_with_an_old_claim() -> Iterator[None]:
    """The process was stopped after its claim; a leader has closed the attempt meanwhile."""
    with replaced(machine, _claimed=lambda *_: Transition(m.Preparing(NEVER_S), (m.Prepare(),))):
        yield


@mutant
def start_after_a_long_preparation() -> Iterator[None]:
    def change(state: Any, event: Any, terms: Any, now_s: float) -> Transition | None:
        is_ready = isinstance(event, m.Prepared) and isinstance(state, m.Preparing)
        if is_ready and state.ordered is Ordered.NOT:
            return Transition(m.Running(now_s + terms.timeout_s), (m.StartDriver(),))
        return None

    yield from _step(change)


@mutant
def start_though_it_is_over() -> Iterator[None]:
    def change(state: Any, event: Any, terms: Any, now_s: float) -> Transition | None:
        if isinstance(state, m.Preparing) and isinstance(event, m.Prepared):
            return Transition(m.Running(now_s + terms.timeout_s), (m.StartDriver(),))
        return None

    yield from _step(change)


@mutant
def started_again_when_prepared_again() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Running) and isinstance(event, m.BoardChanged):
            return Transition(state, (m.StartDriver(),))
        return None

    yield from _step(change)


@mutant
def no_kill_after_the_grace() -> Iterator[None]:
    original = machine._ordered

    def ordered(*args: Any, **others: Any) -> Transition:
        told, instructions = original(*args, **others)
        return Transition(machine.replace(told, kill_at_s=NEVER_S), instructions)

    with replaced(machine, _ordered=ordered):
        yield


@mutant
def timeout_is_not_watched() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Preparing) and isinstance(event, m.Prepared) and state.ordered is Ordered.NOT:
            return Transition(m.Running(NEVER_S), (m.StartDriver(),))
        return None

    yield from _step(change)


@mutant
def told_to_end_twice() -> Iterator[None]:
    original = machine._ordered

    def ordered(state: Any, *args: Any, **others: Any) -> Transition:
        return original(machine.replace(state, ordered=Ordered.NOT), *args, **others)

    with replaced(machine, _ordered=ordered):
        yield


@mutant
def stop_is_not_heard() -> Iterator[None]:
    original = machine._board_read
    with replaced(machine, _board_read=lambda s, e, *a: original(s, e._replace(stop_requested=False), *a)):
        yield


@mutant
def filled_end_is_not_heard() -> Iterator[None]:
    with replaced(m.BoardRead, is_useless=property(lambda event: event.holder is ClaimHolder.OTHER)):
        yield


@mutant
def one_empty_read_ends_it() -> Iterator[None]:
    with replaced(machine, GONE_AFTER_S=-1.0):
        yield


@mutant
def reads_that_overlap_prove_that_it_is_gone() -> Iterator[None]:
    """The answers are far apart, but the same lag of a server caused both."""

    def gone(since_s: Any, event: Any) -> bool:
        return since_s is not None and event.asked_s - since_s >= 0

    with replaced(machine, _is_gone=gone):
        yield


@mutant
def empty_reads_are_counted_over_hours() -> Iterator[None]:
    original = machine._board_read

    def looked(state: Any, event: Any, terms: Any, now_s: float) -> Transition:
        after, instructions = original(state, event, terms, now_s)
        return Transition(
            machine.replace(after, gone_since_s=after.gone_since_s or state.gone_since_s), instructions
        )

    with replaced(machine, _board_read=looked):
        yield


@mutant
def beat_after_end() -> Iterator[None]:
    with replaced(life, _KEPT_UP=(*life._KEPT_UP, m.Storing)):
        yield


@mutant
def beat_for_a_later_run() -> Iterator[None]:
    """The leader would take the attempt of another for alive."""

    def apply(life: Life, event: Any, now_s: float) -> Any:
        life._is_needed = True
        return original(life, event, now_s)

    original = Life.apply
    with replaced(Life, apply=apply):
        yield


@mutant
def beat_where_no_claim_is() -> Iterator[None]:
    """The attempt was archived, and its place may be that of a later run."""
    original = life.keep_up

    def step(kept: Any, event: Any, pace: Any, now_s: float) -> Any:
        claimed = event._replace(holder=ClaimHolder.OURS) if isinstance(event, m.BoardRead) else event
        return original(kept, claimed, pace, now_s)

    with replaced(life, keep_up=step):
        yield


@mutant
def no_beat_while_the_end_is_delivered() -> Iterator[None]:
    """The leader takes it for lost, while its output is being stored."""
    with replaced(life, _KEPT_UP=(m.Checking, m.Preparing, m.Running)):
        yield


@mutant
def heartbeat_is_lost_with_its_session() -> Iterator[None]:
    original = life.keep_up

    def step(kept: Any, event: Any, pace: Any, now_s: float) -> Any:
        return original(
            kept, event._replace(has_heartbeat=True) if isinstance(event, m.BoardRead) else event, pace, now_s
        )

    with replaced(life, keep_up=step):
        yield


@mutant
def change_during_a_read_is_read_late() -> Iterator[None]:
    original = life.keep_up

    def step(kept: Any, event: Any, pace: Any, now_s: float) -> Any:
        if isinstance(event, m.BoardRead):
            kept = life.replace(kept, is_watched=True)
        return original(kept, event, pace, now_s)

    with replaced(life, keep_up=step):
        yield


@mutant
def outage_ends_the_reads() -> Iterator[None]:
    original = life.keep_up

    def step(kept: Any, event: Any, pace: Any, now_s: float) -> Any:
        return (kept, ()) if isinstance(event, m.BoardSilent) else original(kept, event, pace, now_s)

    with replaced(life, keep_up=step):
        yield


@mutant
def board_is_read_beside_the_heartbeats_of_the_shell() -> Iterator[None]:
    original = Life.__init__
    with replaced(Life, __init__=lambda self, terms, pace: original(self, terms, pace or Pace())):
        yield


@mutant
def record_is_given_up_on_leaving() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Clearing | m.Committing | m.Recording) and isinstance(event, m.LeaveAsked):
            return Transition(m.Over(), (m.LeaveAttempt(),))
        return None

    yield from _step(change)


@mutant
def running_driver_is_left() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Running) and isinstance(event, m.LeaveAsked):
            return Transition(m.Over(), (m.LeaveAttempt(),))
        return None

    yield from _step(change)


@mutant
def log_that_is_not_stored_is_forgotten() -> Iterator[None]:
    def change(state: Any, event: Any, *_: Any) -> Transition | None:
        if isinstance(state, m.Storing) and isinstance(event, m.LogStored):
            return Transition(m.Over(), (m.ForgetAttempt(state.why),))
        return None

    yield from _step(change)


__all__ = ["MUTANTS", "Life"]


@mutant
def lease_never_ends() -> Iterator[None]:
    original = machine._ticked
    forever = lambda s, terms, now_s: original(machine.replace(s, lease_until_s=NEVER_S), terms, now_s)  # noqa: E731
    with replaced(machine, _ticked=forever):
        yield


@mutant
def lease_counts_from_the_answer() -> Iterator[None]:
    """A slow answer proves nothing about the time after the question."""
    original = machine._board_read

    def looked(state: Any, event: Any, terms: Any, now_s: float) -> Transition:
        return original(state, event._replace(asked_s=now_s), terms, now_s)

    with replaced(machine, _board_read=looked):
        yield


@mutant
def cut_off_driver_is_asked_politely() -> Iterator[None]:
    original = machine._ordered

    def ordered(state: Any, why: Ordered, *more: Any) -> Transition:
        return original(state, Ordered.STOP if why is Ordered.CUT_OFF else why, *more)

    with replaced(machine, _ordered=ordered):
        yield


@mutant
def stopped_driver_has_no_lease() -> Iterator[None]:
    """A driver that was told to end before the outage runs on for its whole grace."""
    original = machine._ticked

    def ticked(state: Any, terms: Any, now_s: float) -> Transition:
        is_told = state.ordered is not Ordered.NOT
        return original(machine.replace(state, lease_until_s=NEVER_S) if is_told else state, terms, now_s)

    with replaced(machine, _ticked=ticked):
        yield
