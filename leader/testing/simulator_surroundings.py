"""What surrounds an election in a simulated process: guard, electable, and whoever writes as leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol, cast

from leader import fencing, guard
from leader.errors import LeaderError
from leader.fencing import FencingToken
from leader.guard import Verdict
from leader.office import events as ev
from leader.protocol import requests as rq
from leader.protocol.terms import Leadership
from leader.testing.history import Kind
from leader.testing.simulator_session import SimulatedSession
from leader.testing.simulator_world import World
from leader.zookeeper.spelled import Spelled

WORK = "/work"
"""What the leader writes: the epoch in which it does."""


class Owner(Protocol):
    """The process, as far as its parts must know it."""

    name: str
    boot: str
    alive: bool
    session: SimulatedSession

    def later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Do something after a while, if the process runs then."""
        ...

    def post_event(self, event: ev.Event) -> None:
        """Put an event into the inbox."""
        ...

    def sample(self) -> Leadership | None:
        """Ask whether we lead."""
        ...


class SimulatedGuard:
    """Says yes, no, nothing, or raises; sooner or later. See `leader.office.ports.GuardPort`."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self._question: Callable[[Verdict], None] | None = None
        self.content = False
        """What it last said; False before it said anything."""

    def ask(self, report: Callable[[Verdict], None]) -> bool:
        """Ask; False while it hangs in an earlier question."""
        if self._question is not None:
            return False
        self._question, self.content = report, False
        if self._world.calm:
            self._owner.later(self._world.between(0, 0.05), self._answer, self._say_yes)
            return True
        mood = self._world.rng.random()
        soon = self._world.between(0, 0.2)
        if mood < 0.70:
            self._owner.later(soon, self._answer, self._say_yes)
        elif mood < 0.80:
            self._owner.later(soon, self._answer, self._say_no)
        elif mood < 0.87:
            self._owner.later(soon, self._answer, self._fail)
        elif mood < 0.95:
            slow = self._world.session_timeout * self._world.rng.uniform(0.2, 0.6)
            self._owner.later(slow, self._answer, self._say_yes)
        return True  # and otherwise it hangs until all is well

    def release(self) -> None:
        """All is well: it hangs no more."""
        if self._question is not None:
            self._owner.later(self._world.between(0, 0.05), self._answer, self._say_no)

    def _answer(self, say: Callable[[], Verdict]) -> None:
        report, self._question = self._question, None
        if report is None:
            return
        self.content = say == self._say_yes
        report(guard.checked(say))

    def _say_yes(self) -> Verdict:
        return Verdict(True)

    def _say_no(self) -> Verdict:
        return Verdict(False, ("not today",))

    def _fail(self) -> Verdict:
        raise RuntimeError("the guard is broken")


class SimulatedElectable:
    """Is told, and takes its time. See `leader.office.ports.NotifierPort`."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self._owed: list[Callable[[], None]] = []  # ends of terms that it has not come back from

    def release(self) -> None:
        """All is well: it hangs no more."""
        while self._owed:
            self._owner.later(self._world.between(0, 0.05), self._owed.pop(0))

    def elected(self, leadership: Leadership) -> None:
        """Lead; or fail to, sometimes."""
        epoch = leadership.epoch
        self._world.note(Kind.CONFIRMED, self._owner.name, epoch, boot=self._owner.boot)
        if not self._world.calm and self._world.chance(0.05):
            failed = ev.AbdicationAsked("elected() raised RuntimeError", epoch)
            self._owner.later(self._world.between(0, 0.3), self._owner.post_event, failed)

    def revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        """Stop."""
        self._world.note(Kind.REVOKED, self._owner.name, leadership.epoch, boot=self._owner.boot, note=reason)
        if self._world.calm or self._world.chance(0.9):
            self._owner.later(self._world.session_timeout * self._world.rng.uniform(0, 0.15), done)
        else:
            self._owed.append(done)  # it hangs until all is well


class SimulatedWriter:
    """Writes as leader, all the time; and with an old token too, until ZooKeeper says no."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self._token: FencingToken | None = None
        # A write that hangs holds up what is asked behind it, and so tells of a dead link. Some hardly write.
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
    """The transaction that the real `fenced_transaction` would send for one write."""
    recorder = _Recorder()
    try:
        fencing.fenced_transaction(cast("Any", recorder), token, lambda txn: txn.set_data(path, data))
    except _RecordedError:
        return rq.Transaction(tuple(_unspelled(recorder.operations)))
    raise AssertionError("fenced_transaction did not call ZooKeeper")


def _unspelled(operations: list[rq.Operation | Spelled]) -> Iterator[rq.Operation]:
    for operation in operations:
        if isinstance(operation, Spelled):  # the fence: checks, and nothing else
            yield from (rq.Check(check.path, check.version) for check in operation.operations)
        else:
            yield operation


class _RecordedError(Exception):
    """The transaction is complete."""


class _Recorder:
    """A session, its client and its transaction, as far as `fenced_transaction` looks."""

    def __init__(self) -> None:
        self.operations: list[rq.Operation | Spelled] = []
        self.client = self
        self.chroot = ""

    def transaction(self) -> _Recorder:
        return self

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.operations.append(rq.SetData(path, data, version))

    def commit_async(self) -> None:
        raise AssertionError("nobody calls this")

    def call(self, _method: object, **_kw: object) -> list[Any]:
        raise _RecordedError
