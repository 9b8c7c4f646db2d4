"""Faults of the nodes of a simulated election."""

from __future__ import annotations

from leader.errors import LeaderError
from leader.protocol import requests as rq
from tests.leader.election.stage import Stage, Strike


class NodeFaults:
    """See the module. Each fault returns its victim, or None if nothing happened."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def kinds(self) -> list[tuple[Strike, float]]:
        """All faults, with their probabilities."""
        return [
            (self._delete_latch, 3),
            (self._delete_leader_node, 2),
            (self._delete_queue, 1),
            (self._delete_epoch, 0.5),
            (self._overwrite_leader_node, 1),
            (self._delete_card, 1),
            (self._stranger, 2),
            (self._forbid, 1),
        ]

    def _delete_latch(self) -> str | None:
        victim = self._stage.anybody()
        session_id = victim.session.session_id
        for path in self._stage.ensemble.zookeeper.tree.owned_by(session_id or -1):
            if path.startswith(f"{self._stage.simulator.paths.queue}/"):
                self._stage.depose(victim, told=True)
                return self._stage.operate(rq.Delete(path), victim.name)
        return None

    def _delete_leader_node(self) -> str | None:
        return self._stage.operate(rq.Delete(self._stage.simulator.paths.leader), "leader node")

    def _delete_queue(self) -> str | None:
        if not self._stage.ensemble.serving:
            return None
        for process in self._stage.simulator.living():
            self._stage.depose(process, told=True)
        for path in self._stage.ensemble.zookeeper.tree.below(self._stage.simulator.paths.queue):
            self._stage.operate(rq.Delete(path), "queue")
        return "queue"

    def _delete_epoch(self) -> str | None:
        done = self._stage.operate(rq.Delete(self._stage.simulator.paths.epoch), "epoch")
        if done is not None:
            self._stage.reborn()
        return done

    def _overwrite_leader_node(self) -> str | None:
        return self._stage.operate(rq.SetData(self._stage.simulator.paths.leader, b"nobody"), "leader node")

    def _delete_card(self) -> str | None:
        victim = self._stage.anybody()
        return self._stage.operate(rq.Delete(self._stage.simulator.paths.member(victim.name)), victim.name)

    def _stranger(self) -> str | None:
        """Another client queues for some time, with a latch such as Curator's, and may lead."""
        prefix = f"{self._stage.simulator.paths.queue}/_c_stranger-latch-"
        if not self._stage.ensemble.serving:
            return None
        try:
            path = self._stage.ensemble.zookeeper.write(rq.Create(prefix, b"stranger", sequential=True))
        except LeaderError:
            return None
        self._stage.strangers.append(path)
        self._stage.world.clock.call_later(self._stage.span(0.1, 3), self._leave, path)
        return "stranger"

    def _forbid(self) -> str | None:
        """Remove the participants' permissions, and restore them."""
        for process in self._stage.simulator.living():
            self._stage.depose(process, told=False)
        self._stage.ensemble.forbidden = self._stage.rng.choice(
            [self._stage.simulator.paths.root, self._stage.simulator.paths.queue]
        )
        self._stage.world.clock.call_later(self._stage.span(0.1, 2), self._stage.permit)
        return "access lists"

    def _leave(self, path: str) -> None:
        self._stage.operate(rq.Delete(path), "stranger")
