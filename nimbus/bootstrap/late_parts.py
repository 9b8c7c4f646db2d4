"""References to parts of a scheduler that are built later than their users."""

from __future__ import annotations

from collections.abc import Mapping

from blobsync import Readiness
from leader import Elector
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.ids import PipelineName
from nimbus.engine.events import Event, QuarantineChanged
from nimbus.engine.loop import Engine, EngineStatus
from nimbus.scheduler.announcer import ReplicaAnnouncer
from nimbus.scheduler.registrar import Registrar


class LateParts:
    """Forwards calls to parts that are built later: references are circular, imports are not."""

    engine: Engine
    election: Elector
    registrar: Registrar
    announcer: ReplicaAnnouncer

    def enqueue(self, event: Event) -> None:
        self.engine.enqueue(event)

    def quarantine(self, quarantined: Mapping[PipelineName, str]) -> None:
        self.engine.enqueue(QuarantineChanged(quarantined))

    def publish_readiness(self, info: SchedulerInfo) -> None:
        self.election.publish_readiness(
            info.ready,
            missing=info.missing_count,
            missing_bytes=info.missing_bytes,
            reasons=(info.lacks,) if info.lacks else (),
        )

    def stand(self, stands: bool) -> None:
        """To the election: join the lock queue, or leave it."""
        if stands:
            self.election.add_to_leader_lock_queue()
        else:
            self.election.remove_from_leader_lock_queue()

    def id_taken(self) -> str:
        return self.registrar.id_taken

    def leads(self) -> bool:
        return self.election.is_leader()

    def leads_in(self, epoch: int) -> bool:
        """From the election, when called: false if it leads again in a later epoch."""
        leadership = self.election.leadership()
        return leadership is not None and leadership.epoch == epoch

    def engine_status(self) -> EngineStatus:
        return self.engine.status

    def changed(self) -> None:
        """To the registrar: reported data have changed."""
        self.registrar.wake()

    def synced(self, _readiness: Readiness) -> None:
        """To the registrar and the announcer: the local store has changed."""
        self.registrar.wake()
        self.announcer.wake()
