"""Faults of simulated sessions and ZooKeeper servers."""

from __future__ import annotations

from tests.leader.election.stage import Stage, Strike


class ServerFaults:
    """See the module. Each fault returns its victim, or None if nothing happened."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def kinds(self) -> list[tuple[Strike, float]]:
        """All faults, with their probabilities."""
        return [
            (self._expire_session, 2),
            (self._replace_session, 3),
            (self._isolate_server, 4),
            (self._isolate_and_pause, 1),
            (self._fell_server, 2),
            (self._outage, 2),
            (self._wipe, 0.7),
        ]

    def _expire_session(self) -> str | None:
        """Close the session, as ZooKeeper's tools and a wrong sentinel can."""
        victim = self._stage.anybody()
        if victim.session.session_id is None:
            return None
        self._stage.depose(victim, told=True)
        self._stage.ensemble.zookeeper.close_session(victim.session.session_id)
        return victim.name

    def _replace_session(self) -> str | None:
        """At its next connection it gets another session, and no message about the old one (K2)."""
        victim = self._stage.anybody()
        if victim.session.session_id is None:
            return None
        self._stage.ensemble.forgotten.add(victim.session.session_id)
        if victim.session.connection is not None:
            victim.session.connection.close()
        return victim.name

    def _isolate_server(self) -> str | None:
        server = self._stage.rng.choice(self._stage.ensemble.servers)
        connection = self._stage.anybody().session.connection
        if connection is not None and self._stage.world.chance(0.6):
            server = connection.server
        server.isolate()
        self._stage.world.clock.call_later(self._stage.span(0.2, 3), server.join)
        return f"server {server.number}"

    def _isolate_and_pause(self) -> str | None:
        """The signs of life do not reach the ensemble's leader, and the client does not notice."""
        victim = self._stage.anybody()
        if victim.session.connection is not None:
            server = victim.session.connection.server
            server.isolate()
            self._stage.world.clock.call_later(self._stage.span(1, 3), server.join)
        victim.pause()
        self._stage.world.clock.call_later(self._stage.span(0.5, 1.1), victim.wake)
        return victim.name

    def _fell_server(self) -> str | None:
        server = self._stage.rng.choice(self._stage.ensemble.servers[1:] or self._stage.ensemble.servers)
        if server.number == 0:
            return self._outage()
        server.fall()
        self._stage.world.clock.call_later(self._stage.span(0.1, 1), server.join)
        return f"server {server.number}"

    def _outage(self) -> str | None:
        if not self._stage.ensemble.serving:
            return None
        self._stage.ensemble.fall()
        self._stage.world.clock.call_later(self._stage.span(0.02, 2), self._stage.rise)
        return "ensemble"

    def _wipe(self) -> str | None:
        """Delete all data. At the end, an operator restores the epoch."""
        if not self._stage.ensemble.serving:
            return None
        self._stage.ensemble.fall()
        for process in self._stage.simulator.living():
            self._stage.depose(process, told=False)
        self._stage.ensemble.rise(wiped=True)
        self._stage.simulator.lay_out()
        self._stage.reborn()
        return "ensemble"
