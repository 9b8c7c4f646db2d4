"""The rest of a simulated process: guard, electable, and a writer that writes as leader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, cast

from leader.core.participant import model as m
from leader.elector import Verdict
from leader.errors import LeaderError
from leader.protocol import requests as rq
from leader.protocol.terms import FencingToken, Leadership
from leader.runtime import callbacks
from leader.zookeeper import fencing
from tests.leader.election.history import Kind
from tests.leader.election.session import SimulatedSession
from tests.leader.election.world import World

WORK = "/work"
"""The node that the leader writes. Its content is the epoch."""


class Owner(Protocol):
    """The part of the process that its components use."""

    name: str
    boot: str
    alive: bool
    session: SimulatedSession

    def later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Do something later, if the process runs then."""
        ...

    def post_event(self, event: m.Event) -> None:
        """Put an event into the inbox."""
        ...

    def sample(self) -> Leadership | None:
        """Call `is_leader()`, and record the answer."""
        ...


class SimulatedCallbacks:
    """Guard and electable, one call at a time, in order. See `leader.core.participant.term.CallbackPort`.

    The guard agrees, refuses, does not answer, or raises, after a random time. The electable is slow, fails
    or hangs.
    """

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self._waiting: deque[Callable[[], None]] = deque()  # each call begins when the previous one has ended
        self._under_way: Callable[[], None] | None = None  # result of the current call if it is released
        self._asked_about: int | None = None
        self.content = False
        """The last answer of the guard; False before the first one."""

    def release(self) -> None:
        """End all hanging calls."""
        outcome = self._under_way
        if outcome is not None:
            self._owner.later(self._soon(), self._end, outcome, outcome)

    def ask(self, epoch: int) -> None:
        """Ask the guard."""
        self._asked_about = epoch
        self._put(partial(self._judge, epoch))

    def elected(self, leadership: Leadership) -> None:
        """Call `elected`, which sometimes fails."""
        epoch = leadership.epoch
        self._world.note(Kind.CONFIRMED, self._owner.name, epoch, boot=self._owner.boot)
        self._put(partial(self._lead, epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Call `revoked`."""
        epoch = leadership.epoch
        self._world.note(Kind.REVOKED, self._owner.name, epoch, boot=self._owner.boot, note=reason)
        self._put(partial(self._stop, epoch))

    # --- the calls ----------------------------------------------------------------------------------

    def _judge(self, epoch: int) -> None:
        if epoch != self._asked_about:
            self._next()
            return
        self.content = False
        yes, no, fail = (partial(self._say, epoch, say) for say in (self._say_yes, self._say_no, self._fail))
        if self._world.calm:
            self._begin(self._soon(), yes, released=no)
            return
        mood = self._world.rng.random()
        soon = self._world.between(0, 0.2)
        if mood < 0.70:
            self._begin(soon, yes, released=no)
        elif mood < 0.80:
            self._begin(soon, no)
        elif mood < 0.87:
            self._begin(soon, fail, released=no)
        elif mood < 0.95:
            slow = self._world.session_timeout * self._world.rng.uniform(0.2, 0.6)
            self._begin(slow, yes, released=no)
        else:
            self._begin(None, no)

    def _lead(self, epoch: int) -> None:
        if self._world.calm or self._world.chance(0.9):
            self._begin(self._soon(), _nothing)
        elif self._world.chance(0.5):
            failed = m.AbdicationAsked("elected() raised RuntimeError", epoch)
            self._begin(self._world.between(0, 0.3), partial(self._owner.post_event, failed))
        else:
            self._begin(self._world.session_timeout * self._world.rng.uniform(0.2, 0.6), _nothing)

    def _stop(self, epoch: int) -> None:
        back = partial(self._owner.post_event, m.Drained(epoch))
        if self._world.calm or self._world.chance(0.9):
            self._begin(self._world.session_timeout * self._world.rng.uniform(0, 0.15), back)
        else:
            self._begin(None, back)

    def _say(self, epoch: int, say: Callable[[], Verdict]) -> None:
        self.content = say == self._say_yes
        self._owner.post_event(m.GuardSaid(epoch, callbacks.checked(say)))

    def _say_yes(self) -> Verdict:
        return Verdict(True)

    def _say_no(self) -> Verdict:
        return Verdict(False, ("not today",))

    def _fail(self) -> Verdict:
        raise RuntimeError("the guard is broken")

    # --- their order --------------------------------------------------------------------------------

    def _soon(self) -> timedelta:
        return self._world.between(0, 0.05)

    def _put(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        if self._under_way is None and len(self._waiting) == 1:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()

    def _begin(
        self,
        takes: timedelta | None,
        outcome: Callable[[], None],
        released: Callable[[], None] | None = None,
    ) -> None:
        """Begin a call that returns after some time. None: it hangs until it is released."""
        self._under_way = released or partial(outcome)  # a new object for each call
        if takes is not None:
            self._owner.later(takes, self._end, self._under_way, outcome)

    def _end(self, call: Callable[[], None], outcome: Callable[[], None]) -> None:
        if self._under_way is call:
            self._under_way = None
            outcome()
            self._next()


def _nothing() -> None:
    pass


class SimulatedWriter:
    """Writes as leader continuously, and with an old token, too, until ZooKeeper refuses it."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self._token: FencingToken | None = None
        # A hanging write blocks later requests, which shows a dead link. Some processes rarely write.
        self._pause = world.session_timeout * world.rng.choice((0.4, 0.4, 40.0))
        self._next()

    def _next(self) -> None:
        self._owner.later(self._pause * self._world.rng.uniform(0.05, 1), self._write)

    def _write(self) -> None:
        leadership = self._owner.sample()
        if leadership is not None:
            self._token = leadership.token
        token = self._token
        if token is not None and self._owner.session.is_connected:
            hesitation = self._world.between(0, 0.001)
            if not self._world.calm and self._world.chance(0.2):
                hesitation = self._world.session_timeout * self._world.rng.random()
            self._owner.later(hesitation, self._send, token)
        self._next()

    def _send(self, token: FencingToken) -> None:
        request = fenced_request(token, WORK, str(token.epoch).encode())
        self._owner.session.ask(request, lambda _answer, error: self._heard(token, error))

    def _heard(self, token: FencingToken, error: LeaderError | None) -> None:
        if isinstance(error, rq.TransactionFailedError):
            self._world.note(Kind.FENCED, self._owner.name, token.epoch, boot=self._owner.boot)
            if self._token is token:
                self._token = None


def fenced_request(token: FencingToken, path: str, data: bytes) -> rq.Transaction:
    """The transaction that the real `fenced_transaction` sends for one write."""
    recorder = _Recorder()
    try:
        fencing.fenced_transaction(cast("Any", recorder), token, lambda txn: txn.set_data(path, data))
    except _RecordedError:
        return rq.Transaction(tuple(recorder.operations))
    raise AssertionError("fenced_transaction did not call ZooKeeper")


class _RecordedError(Exception):
    """Raised when the transaction is complete."""


class _Recorder:
    """The parts of session, client and transaction that `fenced_transaction` uses."""

    def __init__(self) -> None:
        self.operations: list[rq.Operation] = []
        self.client = self

    def transaction(self) -> _Recorder:
        return self

    def check(self, path: str, version: int) -> None:
        self.operations.append(rq.Check(path, version))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.operations.append(rq.SetData(path, data, version))

    def commit_async(self) -> None:
        raise AssertionError("this is never called")

    def call(self, _method: object, **_kw: object) -> list[Any]:
        raise _RecordedError
