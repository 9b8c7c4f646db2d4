"""Injects random faults into a simulated election, and ends all of them at the end."""

from __future__ import annotations

from leader.protocol import requests as rq
from leader.protocol.terms import EpochRecord, encode_epoch
from tests.leader.election.faults_links import LinkFaults
from tests.leader.election.faults_nodes import NodeFaults
from tests.leader.election.faults_servers import ServerFaults
from tests.leader.election.faults_users import Wishes
from tests.leader.election.history import Kind
from tests.leader.election.stage import Run, Stage, Strike, epoch_in


class Faults:
    """Injects random faults, and ends all of them at the end."""

    def __init__(self, run: Run) -> None:
        self._stage = stage = Stage(run)
        families = (LinkFaults(stage), ServerFaults(stage), NodeFaults(stage), Wishes(stage))
        self._kinds = [(strike, weight) for family in families for strike, weight in family.kinds()]
        wanted = stage.world.settings.kinds
        self._weights = [
            weight if not wanted or _named(strike) in wanted else 0.0 for strike, weight in self._kinds
        ]

    def strike(self) -> None:
        """Inject one fault."""
        self._stage.forgive()
        strike, _ = self._stage.rng.choices(self._kinds, self._weights)[0]
        victim = strike()
        if victim is not None:
            self._stage.world.note(Kind.FAULT, victim, note=_named(strike))

    def mend(self) -> None:
        """End every fault, and undo the actions of users and operators."""
        stage, run = self._stage, self._stage.simulator
        stage.world.calm = True
        stage.rise()
        for server in stage.ensemble.servers:
            server.join()
        stage.permit()
        stage.operate(rq.Delete(run.paths.control), "control node")
        for path in stage.strangers:
            stage.operate(rq.Delete(path), "stranger")
        self._restore_epoch()
        for process in run.processes():
            process.session.trap = None
            stage.clear(process)
            process.wake()
            process.callbacks.release()
            if process.alive:
                process.publish_readiness(True)
            run.restart(process)
        stage.world.note(Kind.HEALED)

    def _restore_epoch(self) -> None:
        """Set the epoch like an operator who has read that the epoch went backwards."""
        stage, path, highest = (
            self._stage,
            self._stage.simulator.paths.epoch,
            self._stage.simulator.highest_epoch,
        )
        node = stage.ensemble.zookeeper.tree.get(path)
        if node is None:
            stage.operate(rq.EnsurePath(path), "epoch")
        if node is None or epoch_in(node.data) < highest:
            stage.operate(rq.SetData(path, encode_epoch(EpochRecord(highest))), "epoch")


def _named(strike: Strike) -> str:
    return strike.__name__.strip("_").replace("_", " ")
