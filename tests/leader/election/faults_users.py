"""Actions of users and operators in a simulated election, at bad moments."""

from __future__ import annotations

from leader.core.participant import model as m
from leader.protocol import requests as rq
from leader.protocol.control import Control, Pause, Switchover, encode_control
from tests.leader.election.stage import Stage, Strike


class Wishes:
    """See the module. Each action returns its victim, or None if nothing happened."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def kinds(self) -> list[tuple[Strike, float]]:
        """All actions, with their probabilities."""
        return [
            (self._abdicate, 2),
            (self._leave_and_return, 3),
            (self._close, 3),
            (self._poke, 1),
            (self._change_readiness, 2),
            (self._pause_elections, 1),
            (self._switch_over, 2),
        ]

    def _abdicate(self) -> str | None:
        victim = self._stage.anybody()
        victim.post_event(m.AbdicationAsked("asked to"))
        return victim.name

    def _leave_and_return(self) -> str | None:
        victim = self._stage.anybody()
        victim.post_event(m.RemoveAsked())
        victim.later(self._stage.span(0, 0.5), victim.post_event, m.AddAsked())
        if self._stage.world.chance(0.3):
            self._stage.flap(victim)
        return victim.name

    def _close(self) -> str | None:
        victim = self._stage.anybody()
        victim.post_event(m.CloseAsked())
        self._stage.world.clock.call_later(self._stage.span(0.1, 2), self._stage.simulator.restart, victim)
        return victim.name

    def _poke(self) -> str | None:
        victim = self._stage.anybody()
        victim.post_event(m.Poked())
        return victim.name

    def _change_readiness(self) -> str | None:
        victim = self._stage.anybody()
        victim.publish_readiness(self._stage.world.chance(0.5))
        return victim.name

    def _pause_elections(self) -> str | None:
        control = Control(pause=Pause(self._stage.anybody().name, "simulated"))
        return self._control(control)

    def _switch_over(self) -> str | None:
        leading = [one for one in self._stage.simulator.living() if one.core.term.leadership() is not None]
        leadership = leading[0].core.term.leadership() if leading else None
        if leadership is None:
            return None
        to = self._stage.rng.choice(self._stage.simulator.living()).name
        return self._control(Control(switchover=Switchover(to, leadership.epoch, "simulated")))

    def _control(self, control: Control) -> str | None:
        path, data = self._stage.simulator.paths.control, encode_control(control)
        if self._stage.ensemble.zookeeper.tree.get(path) is None:
            return self._stage.operate(rq.Create(path, data), "control node")
        return self._stage.operate(rq.SetData(path, data), "control node")
