"""The state machine of an attempt. Pure: the same inputs give the same transition.

The invariants; `tests/nimbus/property/test_attempt_laws.py` checks them with random histories:

1. The driver starts at most once, after the board showed our claim within `Terms.claim_valid_s`.
2. A success is recorded only if the code had come to its end before the driver was told to end, and its
   output was stored after the last of its processes had ended.
3. END is filled only after the exit record was written, and that only after the last process was killed, also
   of a driver that waits for its start.
4. A driver that was told to end gets SIGKILL when `Terms.stop_grace_s` has passed.
5. A driver gets SIGKILL when the board did not show our claim for `Terms.lease_s`.
6. In every state but `Over` an answer to an instruction, the end of the driver, or a tick is due.

There is one function for each state, without a catch-all: the type check finds an event that a state does not
handle, since the events that change nothing are listed for each state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, NoReturn, Optional, Tuple, Union

from nimbus.attempt import model as m
from nimbus.attempt.model import NEVER_S, ClaimHolder, Event, Instruction, Ordered, State, Story, Terms

READ_AGAIN_S = 1.0
GONE_AFTER_S = 5.0
"""Two reads without our claim prove that the attempt was archived if the second began this long after the
answer to the first. One proves nothing, because a server may lag behind."""


class Transition(NamedTuple):
    """The next state, and the instructions to perform, in this order."""

    state: State
    instructions: Tuple[Instruction, ...] = ()


def step(state: State, event: Event, terms: Terms, now_s: float) -> Transition:
    """The transition that `event` causes in `state`. `now_s`: on a clock that does not step."""
    if isinstance(state, m.Running):
        return _running(state, event, terms, now_s)
    if isinstance(state, m.AwaitingClaim):
        return _awaiting_claim(state, event, terms, now_s)
    if isinstance(state, m.Checking):
        return _checking(state, event, terms, now_s)
    if isinstance(state, m.Preparing):
        return _preparing(state, event, terms, now_s)
    return _after_the_driver(state, event, terms)


def due_s(state: State) -> float:
    """When the next `Tick` is due; `NEVER_S`: before something else happens."""
    if isinstance(state, m.Running):
        return min(state.kill_at_s, state.stuck_at_s, state.deadline_s, state.lease_until_s)
    return state.board_read_at_s if isinstance(state, m.Checking) else NEVER_S


def _after_the_driver(state: m.AfterTheDriver, event: Event, terms: Terms) -> Transition:
    if isinstance(state, m.Clearing):
        return _clearing(state, event, terms)
    if isinstance(state, m.Committing):
        return _committing(state, event)
    if isinstance(state, m.Recording):
        return _recording(state, event)
    if isinstance(state, m.Delivering):
        return _delivering(state, event)
    if isinstance(state, m.Storing):
        return _storing(state, event)
    if isinstance(state, m.Over):
        return Transition(state)
    return _never(state)


def _never(value: NoReturn) -> NoReturn:
    raise AssertionError(f"{value!r} is not handled")


# --- moves that several states make ------------------------------------------------------------------


def _forget(why: str) -> Transition:
    return Transition(m.Over(), (m.Clear(), m.ForgetAttempt(why)))


def _leave() -> Transition:
    return Transition(m.Over(), (m.Clear(), m.LeaveAttempt()))


def _cleared_of(story: Story) -> Transition:
    return Transition(m.Clearing(story), (m.Clear(),))


def _end(story: Story) -> Transition:
    """The story is complete."""
    return Transition(m.Recording(), (m.Record(story),))


def _claimed(asked_s: float, terms: Terms, now_s: float, ordered: Ordered = Ordered.NOT) -> Transition:
    if now_s - asked_s <= terms.claim_valid_s:
        return Transition(m.Preparing(asked_s, ordered), (m.Prepare(),))
    return Transition(m.Checking(), (m.ReadBoard(),))


def _is_gone(since_s: Optional[float], event: m.BoardRead) -> bool:
    return since_s is not None and event.asked_s - since_s >= GONE_AFTER_S


# --- one function for each state ---------------------------------------------------------------------


_OfUpkeep = Union[m.BoardChanged, m.BoardSilent, m.NotesRead]
_Later = Union[
    _OfUpkeep,
    m.EndAnswered,
    m.Exceeded,
    m.ServerGone,
    m.ToldToEnd,
    m.Exited,
    m.StarterDied,
    m.Cleared,
    m.Committed,
    m.Recorded,
    m.LogStored,
]


def _awaiting_claim(state: m.AwaitingClaim, event: Event, terms: Terms, now_s: float) -> Transition:
    if isinstance(event, m.ClaimAnswered):
        if event.holder is ClaimHolder.OURS:
            return _claimed(event.asked_s, terms, now_s)
        return _forget("another driver has the claim")
    if isinstance(event, m.AttemptGone):
        return _forget("the attempt does not exist any more")
    if isinstance(event, m.LeaveAsked):
        return _leave()
    _: Union[_Later, m.BoardRead, m.Prepared, m.Unfit, m.Tick] = event
    return Transition(state)


def _checking(state: m.Checking, event: Event, terms: Terms, now_s: float) -> Transition:
    if isinstance(event, m.BoardRead):
        if event.is_useless:
            return _forget("the attempt is over")
        if event.holder is ClaimHolder.OURS:
            stop = Ordered.STOP if event.stop_requested else Ordered.NOT
            return _claimed(event.asked_s, terms, now_s, stop)
        if _is_gone(state.gone_since_s, event):
            return _cleared_of(Story(lost="its claim is gone"))
        since_s = now_s if state.gone_since_s is None else state.gone_since_s
        return Transition(m.Checking(now_s + READ_AGAIN_S, since_s))
    if isinstance(event, m.Tick):
        if now_s < state.board_read_at_s:
            return Transition(state)
        return Transition(m.Checking(gone_since_s=state.gone_since_s), (m.ReadBoard(),))
    if isinstance(event, m.AttemptGone):
        return _forget("the attempt does not exist any more")
    if isinstance(event, m.LeaveAsked):
        return _leave()
    _: Union[_Later, m.ClaimAnswered, m.Prepared, m.Unfit] = event
    return Transition(state)


def _preparing(state: m.Preparing, event: Event, terms: Terms, now_s: float) -> Transition:
    if isinstance(event, m.Prepared):
        if state.ordered is Ordered.OUTDATED:
            return _forget("the attempt is over")
        if state.ordered is not Ordered.NOT:
            return _cleared_of(Story(ordered=state.ordered))
        if now_s - state.shown_s > terms.claim_valid_s:  # a file system did not answer for that long
            return Transition(m.Checking(), (m.ReadBoard(),))
        until_s = state.shown_s + terms.lease_s
        return Transition(m.Running(now_s + terms.timeout_s, lease_until_s=until_s), (m.StartDriver(),))
    if isinstance(event, m.Unfit):
        return _cleared_of(Story(refused=event.why, pipeline_at_fault=event.pipeline_at_fault))
    if isinstance(event, m.BoardRead):
        if event.is_useless:
            return Transition(replace(state, ordered=Ordered.OUTDATED))
        is_new = event.stop_requested and state.ordered is Ordered.NOT
        return Transition(replace(state, ordered=Ordered.STOP) if is_new else state)
    if isinstance(event, m.AttemptGone):
        return Transition(replace(state, ordered=Ordered.OUTDATED))
    _: Union[_Later, m.ClaimAnswered, m.LeaveAsked, m.Tick] = event
    return Transition(state)


def _running(state: m.Running, event: Event, terms: Terms, now_s: float) -> Transition:
    if isinstance(event, m.Exited):
        return _exited(state, event)
    if isinstance(event, m.BoardRead):
        return _board_read(state, event, terms, now_s)
    if isinstance(event, m.Tick):
        return _ticked(state, terms, now_s)
    if isinstance(event, m.AttemptGone):
        return _ordered(state, Ordered.OUTDATED, terms, now_s)
    if isinstance(event, m.Exceeded):
        return _ordered(state, Ordered.LIMIT, terms, now_s, event.why)
    if isinstance(event, m.ServerGone):
        return _ordered(state, Ordered.SERVER_GONE, terms, now_s)
    if isinstance(event, m.ToldToEnd):
        return Transition(replace(state, was_done=event.was_done))
    if isinstance(event, m.StarterDied):
        return _cleared_of(Story(lost="the process that forked its driver died"))
    _: Union[
        _OfUpkeep,
        m.ClaimAnswered,
        m.EndAnswered,
        m.Prepared,
        m.Unfit,
        m.Cleared,
        m.Committed,
        m.Recorded,
        m.LogStored,
        m.LeaveAsked,
    ] = event
    return Transition(state)


def _ordered(state: m.Running, why: Ordered, terms: Terms, now_s: float, exceeded: str = "") -> Transition:
    """End the driver, unless it was told before."""
    if state.ordered is not Ordered.NOT:
        return Transition(state)
    at_once = why in (Ordered.LIMIT, Ordered.CUT_OFF)
    told = replace(
        state,
        ordered=why,
        exceeded=exceeded,
        deadline_s=NEVER_S,
        kill_at_s=NEVER_S if at_once else now_s + terms.stop_grace_s,
        stuck_at_s=now_s + terms.stuck_after_s if at_once else NEVER_S,
    )
    return Transition(told, (m.AskToEnd(why, kill=at_once),))


def _board_read(state: m.Running, event: m.BoardRead, terms: Terms, now_s: float) -> Transition:
    if event.is_useless:
        return _ordered(state, Ordered.OUTDATED, terms, now_s)
    if event.holder is ClaimHolder.OURS:
        state = replace(state, gone_since_s=None, lease_until_s=event.asked_s + terms.lease_s)
    elif _is_gone(state.gone_since_s, event):
        return _ordered(state, Ordered.OUTDATED, terms, now_s)
    elif state.gone_since_s is None:
        state = replace(state, gone_since_s=now_s)
    return _ordered(state, Ordered.STOP, terms, now_s) if event.stop_requested else Transition(state)


def _ticked(state: m.Running, terms: Terms, now_s: float) -> Transition:
    is_cut_off = now_s >= state.lease_until_s
    if is_cut_off and state.ordered is Ordered.NOT:
        return _ordered(replace(state, lease_until_s=NEVER_S), Ordered.CUT_OFF, terms, now_s)
    if now_s >= state.deadline_s:
        return _ordered(state, Ordered.TIMEOUT, terms, now_s)
    if is_cut_off or now_s >= state.kill_at_s:
        until_s = NEVER_S if is_cut_off else state.lease_until_s
        stuck_s = now_s + terms.stuck_after_s
        killed = replace(state, kill_at_s=NEVER_S, lease_until_s=until_s, stuck_at_s=stuck_s)
        return Transition(killed, (m.KillDriver(),))
    if now_s >= state.stuck_at_s:
        return Transition(replace(state, stuck_at_s=NEVER_S), (m.KillStarter(),))
    return Transition(state)


def _exited(state: m.Running, event: m.Exited) -> Transition:
    if event.fault:
        return _cleared_of(Story(refused=f"the driver cannot begin: {event.fault}"))
    was_told = state.ordered is not Ordered.NOT
    return _cleared_of(
        Story(
            status=event.status,
            ordered=state.ordered,
            came_to_its_end=state.was_done if was_told else event.is_done,
            exceeded=state.exceeded,
        )
    )


_AtItsEnd = Union[
    _OfUpkeep,
    m.ClaimAnswered,
    m.BoardRead,
    m.Prepared,
    m.Unfit,
    m.Exceeded,
    m.ServerGone,
    m.ToldToEnd,
    m.Exited,
    m.StarterDied,
    m.Tick,
]
"""Events of a driver that come late, and change nothing after its end."""


def _clearing(state: m.Clearing, event: Event, terms: Terms) -> Transition:
    if isinstance(event, m.Cleared):
        story = state.story
        if event.server_gone and story.ordered is Ordered.NOT:
            story = story._replace(ordered=Ordered.SERVER_GONE)
        if story.is_success(terms):
            return Transition(m.Committing(story), (m.Commit(),))
        return _end(story)
    _: Union[_AtItsEnd, m.AttemptGone, m.EndAnswered, m.Committed, m.Recorded, m.LogStored, m.LeaveAsked] = (
        event
    )
    return Transition(state)


def _committing(state: m.Committing, event: Event) -> Transition:
    if isinstance(event, m.Committed):
        return _end(state.story._replace(not_kept=event.fault))
    _: Union[_AtItsEnd, m.AttemptGone, m.EndAnswered, m.Cleared, m.Recorded, m.LogStored, m.LeaveAsked] = (
        event
    )
    return Transition(state)


def _recording(state: m.Recording, event: Event) -> Transition:
    if isinstance(event, m.Recorded):
        return Transition(m.Delivering(), (m.PutEnd(),))
    _: Union[_AtItsEnd, m.AttemptGone, m.EndAnswered, m.Cleared, m.Committed, m.LogStored, m.LeaveAsked] = (
        event
    )
    return Transition(state)


def _delivering(state: m.Delivering, event: Event) -> Transition:
    if isinstance(event, m.EndAnswered):
        return Transition(m.Storing(event.what), (m.StoreLog(),))
    if isinstance(event, m.AttemptGone):
        return Transition(m.Storing("nobody waits for it any more"), (m.StoreLog(),))
    if isinstance(event, m.LeaveAsked):  # the record stays, and a worker delivers it
        return Transition(m.Over(), (m.LeaveAttempt(),))
    _: Union[_AtItsEnd, m.Cleared, m.Committed, m.Recorded, m.LogStored] = event
    return Transition(state)


def _storing(state: m.Storing, event: Event) -> Transition:
    if isinstance(event, m.LogStored):
        return Transition(m.Over(), (m.ForgetAttempt(state.why) if event.is_complete else m.LeaveAttempt(),))
    _: Union[_AtItsEnd, m.AttemptGone, m.EndAnswered, m.Cleared, m.Committed, m.Recorded, m.LeaveAsked] = (
        event
    )
    return Transition(state)
