"""Where faults strike: whom they hit, how operators reach nodes, and what no leader can be blamed for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from leader.core.participant import model as m
from leader.errors import LeaderError
from leader.protocol import requests as rq
from leader.protocol.paths import ElectionPaths
from tests.election.ensemble import Ensemble
from tests.election.history import Kind, Moment
from tests.election.process import Process
from tests.election.session import Weather
from tests.election.world import ZERO, World

Strike = Callable[[], str | None]
"""Does something, and returns to whom; None if there was nothing to do."""

_A_MOMENT = timedelta(milliseconds=40)
"""For a message to arrive and a request under way to be answered, if nothing is wrong."""


class Run(Protocol):
    """The simulator, as far as faults must know it."""

    world: World
    ensemble: Ensemble
    paths: ElectionPaths
    highest_epoch: int

    def processes(self) -> list[Process]:
        """The newest process of each participant, alive or not."""
        ...

    def living(self) -> list[Process]:
        """Those that are alive."""
        ...

    def restart(self, process: Process) -> None:
        """Start its participant again, if it is dead and nobody has done so."""
        ...

    def lay_out(self) -> None:
        """Make what is there before any election."""
        ...


class Stage:
    """See the module."""

    def __init__(self, run: Run) -> None:
        self.simulator, self.world, self.ensemble = run, run.world, run.ensemble
        self.rng, self.session = self.world.rng, self.world.session_timeout
        self.strangers: list[str] = []
        """Paths of latches that strangers have put into the queue."""
        self._deposed: dict[Process, tuple[timedelta, timedelta]] = {}

    def anybody(self) -> Process:
        """A victim: more often than not, who leads."""
        processes = self.simulator.living()
        if self.world.chance(0.6):
            leading = [one for one in processes if one.core.term.leadership() is not None]
            if leading:
                return leading[0]
        return self.rng.choice(processes)

    def span(self, least: float, most: float) -> timedelta:
        """A random time, in parts of the session timeout."""
        return self.session * self.rng.uniform(least, most)

    def operate(self, request: rq.Write, what: str) -> str | None:
        """Change a node, as an operator. None if that cannot be done now."""
        if not self.ensemble.serving:
            return None
        try:
            self.ensemble.zookeeper.write(request)
        except LeaderError:
            return None
        return what

    # --- what more than one kind of fault does ------------------------------------------------------

    def flap(self, victim: Process) -> None:
        """Its user cannot decide."""
        at = ZERO
        for _ in range(self.rng.randint(1, 4)):
            victim.later(at, victim.post_event, m.RemoveAsked())
            at += self.span(0, 0.05)
            victim.later(at, victim.post_event, m.AddAsked())
            at += self.span(0, 0.05)

    def clear(self, victim: Process) -> None:
        """Its link is as it should be."""
        victim.session.weather = Weather()
        victim.session.changed_weather()

    def rise(self) -> None:
        """The ensemble has a quorum."""
        if not self.ensemble.serving:
            self.ensemble.rise()

    def permit(self) -> None:
        """The access lists are as they should be."""
        self.ensemble.forbidden = None

    # --- what no leader can be blamed for -----------------------------------------------------------

    def reborn(self) -> None:
        """Epochs may begin anew, and who had taken one before may still be confirmed for a while."""
        self.world.note(Kind.REBORN, until=self.world.clock.now + self.session)

    def depose(self, victim: Process, *, told: bool) -> None:
        """What it stands on is about to be taken from it.

        Args:
            victim: Whether it leads or not.
            told: A watch or the end of the connection tells it, if the way to it is free; else only its
                deadline does.
        """
        now = self.world.clock.now
        connection = victim.session.connection
        free = (
            told
            and victim.session.weather == Weather()
            and not victim.paused
            and victim.mangle is None
            and not victim.has_backlog
            and connection is not None
            and not connection.server.isolated
        )
        told_by = max(now, victim.session.delivered_by) + _A_MOMENT
        until = told_by if free else now + self.session
        self.world.note(Kind.DEPOSED, victim.name, boot=victim.boot, until=until)
        self._deposed[victim] = (now, until)

    def forgive(self) -> None:
        """Who was deposed and would have been told in a moment may not be told, for another fault strikes."""
        now = self.world.clock.now
        for victim, (at, until) in self._deposed.items():
            if at < now <= until < at + self.session:
                grace = Moment(at, victim.name, Kind.DEPOSED, until=at + self.session, boot=victim.boot)
                self.world.history.append(grace)


def epoch_in(data: bytes) -> int:
    """The number in the epoch node, whatever else it holds."""
    return int(json.loads(data)["epoch"])
