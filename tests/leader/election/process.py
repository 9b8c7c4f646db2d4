"""A simulated process of a participant: a core, and a simulation of `leader.runtime.driver`.

It simulates the driver one piece of work at a time, request by request, so that other processes and faults
can act between two requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from leader.config import ElectionConfig
from leader.core.latch import model as latch_m
from leader.core.participant import model as m
from leader.core.participant.core import ParticipantCore
from leader.errors import LeaderError, ZooKeeperUnavailableError
from leader.journal import Entry, Judged, Move
from leader.protocol.participant import Participant
from leader.protocol.requests import Steps
from leader.protocol.terms import Leadership
from leader.runtime.driver import link_event
from leader.zookeeper.states import SessionState
from tests.leader.election.ensemble import Ensemble
from tests.leader.election.history import Kind
from tests.leader.election.session import SimulatedSession
from tests.leader.election.surroundings import SimulatedCallbacks, SimulatedWriter
from tests.leader.election.world import ZERO, World

Work = Callable[[], Steps[None]]


def configuration(world: World, root: str) -> ElectionConfig:
    """A configuration with short times, so that a short run has many events."""
    session = world.session_timeout
    return ElectionConfig(
        root=root,
        guard_timeout=session / 3,
        requeue_backoff_min=session / 20,
        requeue_backoff_max=session / 3,
        retry_max=session / 10,
        step_down_margin=world.margin,
        handover_timeout=session / 10,
        priority=-1 if world.chance(0.2) else 0,
    )


class Process:
    """See the module. One start of one participant."""

    def __init__(self, world: World, ensemble: Ensemble, root: str, name: str, boot: str) -> None:
        self._world, self._ensemble, self.name, self.boot = world, ensemble, name, boot
        drift = world.settings.drift
        self._rate = 1.0 + world.between(-drift, drift) / timedelta(seconds=1)
        self._born = world.clock.now
        self._read: tuple[timedelta, timedelta] = (ZERO, ZERO)
        self.alive, self.paused = True, False
        self._paused_at = ZERO
        self._outlived_epoch = 0
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._inbox: deque[Work] = deque()
        self._steps: Steps[None] | None = None
        self._call = 0
        self._turn_due = False
        self._timer_at: timedelta | None = None
        self.mangle: Callable[[Work, bool], None] | None = None
        """Called for each arriving signal; the flag says whether it is from the session."""
        self.session = SimulatedSession(world, ensemble, self)
        self.session.on_watch = self._on_watch
        self.session.add_listener(self._on_session)
        self.callbacks = SimulatedCallbacks(world, self)
        self.core = ParticipantCore(
            session=self.session,
            config=configuration(world, root),
            participant=Participant(name, boot_id=boot),
            callbacks=self.callbacks,
            clock=self.clock,
            uniform=world.rng.uniform,
            journal=_Journal(world, name, boot, self.callbacks),
        )
        self.writer = SimulatedWriter(world, self)
        self.post_event(m.AddAsked())

    # --- time ---------------------------------------------------------------------------------------

    def clock(self) -> timedelta:
        """The process's own clock, slightly fast or slow. It continues while the process is paused."""
        now = self._world.clock.now
        if self._read[0] != now:
            self._read = (now, now + (now - self._born) * (self._rate - 1.0))
        return self._read[1]

    def run(self, action: Callable[..., None], *args: Any) -> None:
        """See `tests.leader.election.session.Host`."""
        if not self.alive:
            return
        if self.paused or self._held:
            self._held.append((action, args))
        else:
            action(*args)

    def later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Do something later, if the process runs then."""
        self._world.clock.call_later(delay, self.run, action, *args)

    @property
    def has_backlog(self) -> bool:
        """True if it has not handled all events that arrived during a pause."""
        return bool(self._held)

    def pause(self) -> None:
        """SIGSTOP."""
        if not self.paused:
            self.paused, self._paused_at = True, self._world.clock.now

    def wake(self) -> None:
        """SIGCONT. First, `is_leader()` is called."""
        if self.alive and self.paused:
            self.paused = False
            leadership = self.sample()
            if (
                leadership is not None
                and self._world.clock.now - self._paused_at > self._world.session_timeout
            ):
                self._world.note(Kind.OUTLIVED, self.name, leadership.epoch, boot=self.boot, note="woke")
            self._catch_up()

    def crash(self, *, power: bool) -> None:
        """SIGKILL, or loss of power."""
        self.alive = False
        self.session.die(power=power)
        self._steps = None

    def _catch_up(self) -> None:
        """Handle the events that arrived during a pause, one by one. Newer events wait behind them."""
        if not self._held or self.paused or not self.alive:
            return
        action, args = self._held.popleft()
        action(*args)
        self._world.clock.call_later(ZERO, self._catch_up)

    def sample(self) -> Leadership | None:
        """Call `is_leader()`, and record the answer."""
        leadership = self.core.term.leadership()
        if leadership is not None:
            self._world.note(Kind.OBSERVED, self.name, leadership.epoch, boot=self.boot)
            if self.session.session_id in self._ensemble.zookeeper.expired:
                self._outlived(leadership, "its session has expired")
        return leadership

    def _outlived(self, leadership: Leadership, note: str) -> None:
        if self._outlived_epoch != leadership.epoch:  # report it once
            self._outlived_epoch = leadership.epoch
            self._world.note(Kind.OUTLIVED, self.name, leadership.epoch, boot=self.boot, note=note)

    # --- the driver ---------------------------------------------------------------------------------

    def post(self, work: Work) -> None:
        """Put work into the inbox."""
        self._inbox.append(work)
        self._soon()

    def post_event(self, event: m.Event) -> None:
        """Put an event into the inbox."""
        self.post(lambda: self.core.handle(event))

    def publish_readiness(self, ready: bool) -> None:
        """Like `LeaderLockQueue.publish_readiness`."""
        self.post(lambda: self.core.readiness(ready, 0 if ready else 1, 0, ()))

    def _soon(self) -> None:
        if self._steps is None and not self._turn_due:
            self._turn_due = True
            self.later(self._world.between(0, 0.002), self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._steps is not None or self.core.ended:
            return
        due_at = self.core.due_at
        wait = None if due_at is None else due_at - self.clock()
        if wait is not None and wait <= ZERO:
            self._steps = self.core.expired()
        elif self._inbox:
            self._steps = self._inbox.popleft()()
        else:
            self._arm(wait)
            return
        self._resume(None, None)

    def _arm(self, wait: timedelta | None) -> None:
        if wait is None:
            return
        at = self._world.clock.now + wait
        if self._timer_at is None or at < self._timer_at or self._timer_at <= self._world.clock.now:
            self._timer_at = at
            self._world.clock.call_at(at, self.run, self._soon)

    def _resume(self, answer: Any, error: LeaderError | None) -> None:
        steps = self._steps
        assert steps is not None
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
            while not self.session.is_connected:
                request = steps.throw(ZooKeeperUnavailableError("there is no connection to ZooKeeper"))
        except StopIteration:
            self._end_of_work()
            return
        except Exception as exc:  # noqa: BLE001 - as the driver does; the history records it
            self._world.note(Kind.CRASHED, self.name, boot=self.boot, note=f"{type(exc).__name__}: {exc}")
            self.core.abort("the driver failed")
            self._end_of_work()
            return
        self._call += 1
        call = self._call
        if self._world.telling:
            self._world.tell(self.name, f"sends {_short(request)}")
        self.later(self.session.negotiated_timeout / 3, self._answered, call, None, _TOO_LATE)
        self.session.ask(request, lambda got, failed: self._answered(call, got, failed))

    def _answered(self, call: int, answer: Any, error: LeaderError | None) -> None:
        if call != self._call or self._steps is None:
            return  # too late: the driver no longer waits for this answer
        self._call += 1
        if self._world.telling:
            self._world.tell(self.name, f"receives {_short(answer if error is None else error)}")
        self._resume(answer, error)

    def _end_of_work(self) -> None:
        self._steps = None
        if self.core.ended:
            self.session.leave()
            self.alive = False
            return
        self._soon()

    # --- signals ------------------------------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:
        self._signal(lambda: self.core.watch_fired(path, gone), of_session=False)

    def _on_session(self, state: SessionState) -> None:
        event = link_event(state, self.session.session_id)
        if event is not None:
            self._signal(lambda: self._linked(event), of_session=True)

    def _linked(self, event: latch_m.LinkEvent) -> Steps[None]:
        if self._world.telling:
            self._world.tell(self.name, f"handles {event}")
        return self.core.link(event)

    def _signal(self, work: Work, *, of_session: bool) -> None:
        if self.mangle is not None and not self._world.calm:
            self.mangle(work, of_session)
        else:
            self.post(work)


_TOO_LATE = ZooKeeperUnavailableError("no answer in time; the outcome is unknown")


class _Journal:
    """Reports each move of a state machine, if the run prints its story."""

    def __init__(self, world: World, name: str, boot: str, callbacks: SimulatedCallbacks) -> None:
        self._world, self._name, self._boot, self._callbacks = world, name, boot, callbacks

    def record(self, entry: Entry) -> None:
        match entry:
            case Move() if self._world.telling:
                reason = f" ({entry.reason})" if entry.reason else ""
                self._world.tell(
                    self._name, f"{entry.machine}: {entry.was} -> {entry.now} on {entry.on}{reason}"
                )
            case Judged(epoch):  # records the guard's own answer, not the core's verdict
                kind = Kind.APPROVED if self._callbacks.content else Kind.REFUSED
                self._world.note(kind, self._name, epoch, boot=self._boot)
            case _:
                """Nothing to do: the history records it from the callback."""


def _short(what: object) -> str:
    text = repr(what)
    return text if len(text) < 160 else f"{text[:157]}..."
