"""What can befall a simulated election: faults, users and operators, drawn by the dice."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from leader.errors import LeaderError
from leader.office import events as ev
from leader.protocol import requests as rq
from leader.protocol.records import Control, Pause, Switchover, encode_control, encode_epoch
from leader.testing.history import Kind, Moment
from leader.testing.simulator_process import Process, Work
from leader.testing.simulator_session import Trap, Weather
from leader.testing.simulator_world import ZERO

if TYPE_CHECKING:
    from leader.testing.simulator import Simulator

_ALL = (rq.Create, rq.Transaction, rq.Delete, rq.GetChildren, rq.Exists, rq.Get, rq.SetData)
_TRAPS: tuple[tuple[type, ...], ...] = (
    _ALL,
    (rq.Create,),
    (rq.Create,),
    (rq.Transaction,),
    (rq.Delete, rq.Transaction),
    (rq.GetChildren, rq.Exists),
)

_A_MOMENT = timedelta(milliseconds=40)
"""For a message to arrive and a request under way to be answered, if nothing is wrong."""


class Faults:
    """Strikes at random, and mends everything in the end."""

    def __init__(self, simulator: Simulator) -> None:
        self._sim, self._world, self._ensemble = simulator, simulator.world, simulator.ensemble
        self._rng = self._world.rng
        self._session = self._world.session_timeout
        self._strangers: list[str] = []
        self._deposed: dict[Process, tuple[timedelta, timedelta]] = {}
        wanted = self._world.settings.kinds
        kinds = [(_named(strike), strike, weight) for strike, weight in self._kinds()]
        self._names = [name for name, _, _ in kinds]
        self._strikes = [strike for _, strike, _ in kinds]
        self._weights = [weight if not wanted or name in wanted else 0.0 for name, _, weight in kinds]

    def _kinds(self) -> list[tuple[Callable[[], str | None], float]]:
        return [
            (self._cut, 3),
            (self._trap, 8),
            (self._black_hole, 5),
            (self._slow_link, 3),
            (self._slow_and_pause, 2),
            (self._pause, 5),
            (self._crash, 4),
            (self._expire_session, 2),
            (self._replace_session, 3),
            (self._mangle_signals, 4),
            (self._isolate_server, 4),
            (self._isolate_and_pause, 1),
            (self._fell_server, 2),
            (self._outage, 2),
            (self._wipe, 0.7),
            (self._delete_latch, 3),
            (self._delete_leader_node, 2),
            (self._delete_queue, 1),
            (self._delete_epoch, 0.5),
            (self._overwrite_leader_node, 1),
            (self._delete_card, 1),
            (self._stranger, 2),
            (self._forbid, 1),
            (self._abdicate, 2),
            (self._leave_and_return, 3),
            (self._close, 3),
            (self._poke, 1),
            (self._change_readiness, 2),
            (self._pause_elections, 1),
            (self._switch_over, 2),
        ]

    def strike(self) -> None:
        """Let one thing happen."""
        self._forgive()
        chosen = self._rng.choices(range(len(self._strikes)), self._weights)[0]
        victim = self._strikes[chosen]()
        if victim is not None:
            self._world.note(Kind.FAULT, victim, note=self._names[chosen])

    # --- whom ---------------------------------------------------------------------------------------

    def _anybody(self) -> Process:
        processes = self._sim.living()
        if self._world.chance(0.6):
            leading = [one for one in processes if one.core.leadership() is not None]
            if leading:
                return leading[0]
        return self._rng.choice(processes)

    def _while(self, least: float, most: float) -> timedelta:
        return self._session * self._rng.uniform(least, most)

    # --- links --------------------------------------------------------------------------------------

    def _cut(self) -> str | None:
        victim = self._anybody()
        if victim.session.connection is not None:
            victim.session.connection.close()
        return victim.name

    def _trap(self) -> str | None:
        victim = self._anybody()
        victim.session.trap = Trap(self._rng.choice(_TRAPS), self._world.chance(0.6))
        if victim.session.session_id is not None and self._world.chance(0.2):
            self._ensemble.forgotten.add(victim.session.session_id)
        if self._world.chance(0.5):  # most requests are made by who joins
            self._jolt(victim)
        return victim.name

    def _jolt(self, victim: Process) -> None:
        """Make it ask for something soon."""
        if self._world.chance(0.4):
            victim.post_event(ev.AbdicationAsked("asked to", at_once=True))
        elif self._world.chance(0.6):
            self._flap(victim)
        elif victim.session.session_id is not None:
            self._depose(victim, told=True)
            self._ensemble.zookeeper.close_session(victim.session.session_id)

    def _flap(self, victim: Process) -> None:
        """Its user cannot decide."""
        at = ZERO
        for _ in range(self._rng.randint(1, 4)):
            victim.later(at, victim.post_event, ev.RemoveAsked())
            at += self._while(0, 0.05)
            victim.later(at, victim.post_event, ev.AddAsked())
            at += self._while(0, 0.05)

    def _black_hole(self) -> str | None:
        victim = self._anybody()
        up, down = self._rng.choice([(True, True), (True, True), (True, False), (False, True)])
        victim.session.weather.up_held, victim.session.weather.down_held = up, down
        victim.session.changed_weather()
        self._world.clock.call_later(self._while(0.1, 2.5), self._clear, victim)
        return victim.name

    def _slow_link(self) -> str | None:
        victim = self._anybody()
        victim.session.weather.slow = self._while(0.02, 0.5)
        self._world.clock.call_later(self._while(0.2, 3), self._clear, victim)
        return victim.name

    def _clear(self, victim: Process) -> None:
        victim.session.weather = Weather()
        victim.session.changed_weather()

    def _mangle_signals(self) -> str | None:
        """Signals come late, twice, or in another order."""
        victim = self._anybody()

        def mangle(work: Work, of_session: bool) -> None:
            del of_session
            copies = 2 if self._world.chance(0.2) else 1
            for _ in range(copies):
                late = self._while(0, 0.3) if self._world.chance(0.5) else ZERO
                victim.later(late, victim.post, work)

        def stop() -> None:
            victim.mangle = None

        victim.mangle = mangle
        self._world.clock.call_later(self._while(0.5, 3), stop)
        return victim.name

    # --- processes ----------------------------------------------------------------------------------

    def _pause(self) -> str | None:
        victim = self._anybody()
        victim.pause()
        self._world.clock.call_later(self._while(0.05, 3), victim.wake)
        return victim.name

    def _slow_and_pause(self) -> str | None:
        """Answers come late, and then nothing is done for most of a session."""
        victim = self._anybody()
        victim.session.weather.slow = self._while(0.2, 0.6)
        until = self._while(0.5, 1)
        self._world.clock.call_later(until, victim.pause)
        self._world.clock.call_later(until + self._while(0.5, 1.2), victim.wake)
        self._world.clock.call_later(until + self._session, self._clear, victim)
        return victim.name

    def _crash(self) -> str | None:
        victim = self._anybody()
        victim.crash(power=self._world.chance(0.5))
        self._world.clock.call_later(self._while(0.05, 3), self._sim.restart, victim)
        return victim.name

    # --- sessions and servers -----------------------------------------------------------------------

    def _expire_session(self) -> str | None:
        """Somebody closes the session, as ZooKeeper's tools and a wrong sentinel can."""
        victim = self._anybody()
        if victim.session.session_id is None:
            return None
        self._depose(victim, told=True)
        self._ensemble.zookeeper.close_session(victim.session.session_id)
        return victim.name

    def _replace_session(self) -> str | None:
        """At its next connection it gets another session, without a word about the old one (K2)."""
        victim = self._anybody()
        if victim.session.session_id is None:
            return None
        self._ensemble.forgotten.add(victim.session.session_id)
        if victim.session.connection is not None:
            victim.session.connection.close()
        return victim.name

    def _isolate_server(self) -> str | None:
        server = self._rng.choice(self._ensemble.servers)
        connection = self._anybody().session.connection
        if connection is not None and self._world.chance(0.6):
            server = connection.server
        server.isolate()
        self._world.clock.call_later(self._while(0.2, 3), server.join)
        return f"server {server.number}"

    def _isolate_and_pause(self) -> str | None:
        """The server's signs of life never reach its leader, and the client does not notice."""
        victim = self._anybody()
        if victim.session.connection is not None:
            server = victim.session.connection.server
            server.isolate()
            self._world.clock.call_later(self._while(1, 3), server.join)
        victim.pause()
        self._world.clock.call_later(self._while(0.5, 1.1), victim.wake)
        return victim.name

    def _fell_server(self) -> str | None:
        server = self._rng.choice(self._ensemble.servers[1:] or self._ensemble.servers)
        if server.number == 0:
            return self._outage()
        server.fall()
        self._world.clock.call_later(self._while(0.1, 1), server.join)
        return f"server {server.number}"

    def _outage(self) -> str | None:
        if not self._ensemble.serving:
            return None
        self._ensemble.fall()
        self._world.clock.call_later(self._while(0.02, 2), self._rise)
        return "ensemble"

    def _rise(self) -> None:
        if not self._ensemble.serving:
            self._ensemble.rise()

    def _wipe(self) -> str | None:
        """All data are lost. An operator puts the epoch back in the end."""
        if not self._ensemble.serving:
            return None
        self._ensemble.fall()
        for process in self._sim.living():
            self._depose(process, told=False)
        self._ensemble.rise(wiped=True)
        self._sim.lay_out()
        self._reborn()
        return "ensemble"

    # --- nodes --------------------------------------------------------------------------------------

    def _delete_latch(self) -> str | None:
        victim = self._anybody()
        session_id = victim.session.session_id
        for path in self._ensemble.zookeeper.tree.owned_by(session_id or -1):
            if path.startswith(f"{self._sim.paths.queue}/"):
                self._depose(victim, told=True)
                return self._operate(rq.Delete(path), victim.name)
        return None

    def _delete_leader_node(self) -> str | None:
        return self._operate(rq.Delete(self._sim.paths.leader), "leader node")

    def _overwrite_leader_node(self) -> str | None:
        return self._operate(rq.SetData(self._sim.paths.leader, b"nobody"), "leader node")

    def _delete_card(self) -> str | None:
        victim = self._anybody()
        return self._operate(rq.Delete(self._sim.paths.card(victim.name)), victim.name)

    def _delete_queue(self) -> str | None:
        if not self._ensemble.serving:
            return None
        for process in self._sim.living():
            self._depose(process, told=True)
        for path in self._ensemble.zookeeper.tree.below(self._sim.paths.queue):
            self._operate(rq.Delete(path), "queue")
        return "queue"

    def _delete_epoch(self) -> str | None:
        done = self._operate(rq.Delete(self._sim.paths.epoch), "epoch")
        if done is not None:
            self._reborn()
        return done

    def _reborn(self) -> None:
        """Epochs may begin anew, and who had taken one before may still be confirmed for a while."""
        self._world.note(Kind.REBORN, until=self._world.clock.now + self._session)

    def _stranger(self) -> str | None:
        """Somebody else queues for a while, with a latch such as Curator's, and may even lead."""
        prefix = f"{self._sim.paths.queue}/_c_stranger-latch-"
        if not self._ensemble.serving:
            return None
        try:
            path = self._ensemble.zookeeper.write(rq.Create(prefix, b"stranger", sequential=True))
        except LeaderError:
            return None
        self._strangers.append(path)
        self._world.clock.call_later(self._while(0.1, 3), self._leave, path)
        return "stranger"

    def _leave(self, path: str) -> None:
        self._operate(rq.Delete(path), "stranger")

    def _forbid(self) -> str | None:
        """Somebody takes our permissions away, and gives them back."""
        for process in self._sim.living():
            self._depose(process, told=False)
        self._ensemble.forbidden = self._rng.choice([self._sim.paths.root, self._sim.paths.queue])
        self._world.clock.call_later(self._while(0.1, 2), self._permit)
        return "access lists"

    def _permit(self) -> None:
        self._ensemble.forbidden = None

    def _operate(self, request: rq.Request, what: str) -> str | None:
        if not self._ensemble.serving:
            return None
        try:
            self._ensemble.zookeeper.write(request)
        except LeaderError:
            return None
        return what

    def _depose(self, victim: Process, *, told: bool) -> None:
        """What it stands on is about to be taken from it.

        Args:
            victim: Whether it leads or not.
            told: A watch or the end of the connection tells it, if the way to it is free; else only its
                deadline does.
        """
        now = self._world.clock.now
        weather = victim.session.weather
        connection = victim.session.connection
        free = (
            told
            and weather == Weather()
            and not victim.paused
            and victim.mangle is None
            and not victim.has_backlog
            and connection is not None
            and not connection.server.isolated
        )
        told_by = max(now, victim.session.delivered_by) + _A_MOMENT
        until = told_by if free else now + self._session
        self._world.note(Kind.DEPOSED, victim.name, boot=victim.boot, until=until)
        self._deposed[victim] = (now, until)

    def _forgive(self) -> None:
        """Who was deposed and would have been told in a moment may not be told, for another fault struck."""
        now = self._world.clock.now
        for victim, (at, until) in self._deposed.items():
            if at < now <= until < at + self._session:
                grace = Moment(at, victim.name, Kind.DEPOSED, until=at + self._session, boot=victim.boot)
                self._world.history.append(grace)

    # --- users and operators ------------------------------------------------------------------------

    def _abdicate(self) -> str | None:
        victim = self._anybody()
        victim.post_event(ev.AbdicationAsked("asked to"))
        return victim.name

    def _leave_and_return(self) -> str | None:
        victim = self._anybody()
        victim.post_event(ev.RemoveAsked())
        victim.later(self._while(0, 0.5), victim.post_event, ev.AddAsked())
        if self._world.chance(0.3):
            self._flap(victim)
        return victim.name

    def _close(self) -> str | None:
        victim = self._anybody()
        victim.post_event(ev.CloseAsked())
        self._world.clock.call_later(self._while(0.1, 2), self._sim.restart, victim)
        return victim.name

    def _poke(self) -> str | None:
        victim = self._anybody()
        victim.post_event(ev.Poked())
        return victim.name

    def _change_readiness(self) -> str | None:
        victim = self._anybody()
        victim.publish_readiness(self._world.chance(0.5))
        return victim.name

    def _pause_elections(self) -> str | None:
        control = Control(pause=Pause(self._anybody().name, "simulated"))
        return self._control(control)

    def _switch_over(self) -> str | None:
        leading = [one for one in self._sim.living() if one.core.leadership() is not None]
        leadership = leading[0].core.leadership() if leading else None
        if leadership is None:
            return None
        to = self._rng.choice(self._sim.living()).name
        return self._control(Control(switchover=Switchover(to, leadership.epoch, "simulated")))

    def _control(self, control: Control) -> str | None:
        path, data = self._sim.paths.control, encode_control(control)
        if self._ensemble.zookeeper.tree.get(path) is None:
            return self._operate(rq.Create(path, data), "control node")
        return self._operate(rq.SetData(path, data), "control node")

    # --- the end ------------------------------------------------------------------------------------

    def mend(self) -> None:
        """End every fault; let users and operators want what is usual."""
        self._world.calm = True
        if not self._ensemble.serving:
            self._ensemble.rise()
        for server in self._ensemble.servers:
            server.join()
        self._operate(rq.Delete(self._sim.paths.control), "control node")
        self._permit()
        for path in self._strangers:
            self._operate(rq.Delete(path), "stranger")
        self._restore_epoch()
        for process in self._sim.processes():
            process.session.trap = None
            self._clear(process)
            process.wake()
            process.guard.release()
            if process.alive:
                process.publish_readiness(True)
            self._sim.restart(process)
        self._world.note(Kind.HEALED)

    def _restore_epoch(self) -> None:
        """What an operator does who is told that the epoch went backwards."""
        path, highest = self._sim.paths.epoch, self._sim.highest_epoch
        node = self._ensemble.zookeeper.tree.get(path)
        if node is None:
            self._operate(rq.EnsurePath(path), "epoch")
            self._operate(rq.SetData(path, encode_epoch(highest)), "epoch")
        elif epoch_in(node.data) < highest:
            self._operate(rq.SetData(path, encode_epoch(highest)), "epoch")


def _named(strike: Callable[[], str | None]) -> str:
    return strike.__name__.strip("_").replace("_", " ")


def epoch_in(data: bytes) -> int:
    """The number in the epoch node, whatever else it holds."""
    return int(json.loads(data)["epoch"])
