"""A simplified election, which only assigns epochs. The real election has its own simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leader import Leadership
    from tests.nimbus.simulation.scheduler import Scheduler
    from tests.nimbus.simulation.world import World


class Election:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holder: Scheduler | None = None
        self.losers: dict[Scheduler, Leadership | None] = {}
        """Schedulers that have lost leadership and do not know it yet."""

    def elect(self, scheduler: Scheduler) -> None:
        """Give the next epoch to a reachable scheduler, if the lock is free."""
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
        """Take the lock away; the holder is notified later."""
        if self.holder is scheduler:
            self._release(scheduler)
            self.losers[scheduler] = scheduler.leadership
            scheduler.deluded = self._world.rng.random() < 0.6

    def resign(self, scheduler: Scheduler, reason: str) -> None:
        """Release the lock."""
        self._world.story.note(scheduler.name, "resigns:", reason)
        if self.holder is scheduler:
            self._release(scheduler)
        self.losers[scheduler] = scheduler.leadership

    def tell(self, scheduler: Scheduler) -> None:
        """Notify a scheduler if its leadership is over."""
        leadership = self.losers.pop(scheduler, None)
        scheduler.deluded = False
        if leadership is not None and leadership is scheduler.leadership:  # otherwise it is a newer process
            scheduler.engine.revoked(leadership, "lost")

    def _release(self, scheduler: Scheduler) -> None:
        self.holder = None
        session, scheduler.session = scheduler.session, None
        if session is not None:
            self._world.zookeeper.end_session(session)
