"""Who leads. The election itself has a simulator of its own; here it only hands out epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leader import Leadership
    from tests.simulation.scheduler import Scheduler
    from tests.simulation.world import World


class Election:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holder: Scheduler | None = None
        self.losers: dict[Scheduler, Leadership | None] = {}
        """Who has lost its leadership and was not told yet."""

    def elect(self, scheduler: Scheduler) -> None:
        """Give the next epoch to a scheduler that can be reached, if nobody holds the lock."""
        if self.holder is not None or scheduler.inside or not scheduler.reaches_zookeeper():
            return
        self.tell(scheduler)
        zookeeper = self._world.zookeeper
        epoch = zookeeper.world.epoch + 1
        zookeeper.cluster.change(epoch=epoch)
        self.holder = scheduler
        boot = scheduler.boot
        scheduler.session = zookeeper.open_session(
            lambda: scheduler.boot == boot and scheduler.reaches_zookeeper(), lambda: self.depose(scheduler)
        )
        self._world.story.note(scheduler.name, "leads in epoch", epoch)
        scheduler.win(epoch)

    def depose(self, scheduler: Scheduler) -> None:
        """Take the lock away; it hears of that later."""
        if self.holder is scheduler:
            self._release(scheduler)
            self.losers[scheduler] = scheduler.leadership
            scheduler.deluded = self._world.rng.random() < 0.6

    def resign(self, scheduler: Scheduler, reason: str) -> None:
        """Give the lock back."""
        self._world.story.note(scheduler.name, "resigns:", reason)
        if self.holder is scheduler:
            self._release(scheduler)
        self.losers[scheduler] = scheduler.leadership

    def tell(self, scheduler: Scheduler) -> None:
        """Tell a scheduler that its leadership is over, if it is."""
        leadership = self.losers.pop(scheduler, None)
        scheduler.deluded = False
        if leadership is not None and leadership is scheduler.leadership:  # else its process is another one
            scheduler.engine.revoked(leadership, "lost")

    def _release(self, scheduler: Scheduler) -> None:
        self.holder = None
        session, scheduler.session = scheduler.session, None
        if session is not None:
            self._world.zookeeper.end_session(session)
