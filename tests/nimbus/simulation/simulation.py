"""One seed: a storm, then gusts, then the calm."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.commands import ActivatePipeline
from nimbus.domain.data import datasets
from nimbus.engine.rules.commands import selections
from tests.nimbus.attempts.driver import BrokenLawError
from tests.nimbus.simulation.calm import calm_down
from tests.nimbus.simulation.catalog import FIRST, STREAM
from tests.nimbus.simulation.decoding import remembered
from tests.nimbus.simulation.laws import Law, LawBrokenError
from tests.nimbus.simulation.mutant import replaced
from tests.nimbus.simulation.storm import Storm
from tests.nimbus.simulation.world import World

STEPS = (150, 350)
MAX_VERSIONS = 2
"""Versions that a dataset keeps in ZooKeeper: so few that some leave it in most histories."""

PARTS_AT_ONCE = 2
"""Commands of a selection that are queued together: so few that most selections need several steps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed."""

    seed: int
    broken: LawBrokenError | None
    world: World

    @property
    def step(self) -> int:
        """The last one."""
        return self.world.story.step


def simulate(seed: int, *, lines: int | None = 80) -> Outcome:
    """Run a seed to its end, or until a law is broken."""
    with (
        remembered(),
        replaced(datasets, MAX_VERSIONS=MAX_VERSIONS),
        replaced(selections, PARTS_AT_ONCE=PARTS_AT_ONCE),
    ):
        world = World(seed, lines=lines)
        storm = Storm(world)
        world.act = storm.act
        try:
            _begin(world)
            for _ in range(world.rng.randint(*STEPS)):
                storm.act()
            calm_down(world, storm.gust)
        except LawBrokenError as broken:
            return Outcome(seed, broken, world)
        except BrokenLawError as broken:
            return Outcome(seed, LawBrokenError(Law.DRIVER, str(broken)), world)
        return Outcome(seed, None, world)


def _begin(world: World) -> None:
    """Start workers, elect a leader, and submit some work."""
    for worker in world.workers:
        worker.read()
    world.election.elect(world.schedulers[0])
    if world.rng.random() < 0.5:
        world.operators.submit(ActivatePipeline(pipeline=STREAM.name, digest=FIRST))
    for _ in range(3):
        world.operators.ask()
