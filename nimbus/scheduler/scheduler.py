"""One scheduler: its parts, in the order in which they start and stop.

Start: API port, access, sync, registration and announcement, engine, election, collection of garbage, worker.
Stop: worker (drained, its runners go on), election (the lock is released, so a successor leads at once),
engine, collection, announcement, registration, sync, access, API.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from blobsync import Syncer
from leader import Elector, SessionState
from nimbus.adapters.store.calls import StoreSession
from nimbus.api.server import ApiServer
from nimbus.engine.effects import Effects
from nimbus.engine.loop import Engine
from nimbus.scheduler.announcer import ReplicaAnnouncer
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.followers import AccessFollower, CatalogFollower
from nimbus.scheduler.process import shutdown_step
from nimbus.scheduler.registrar import Registrar

if TYPE_CHECKING:  # a scheduler without a worker needs less memory
    from nimbus.worker.worker import Worker

STEP = timedelta(seconds=5)
"""Longest wait for one part to stop. The whole process has its own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts of a scheduler, wired together."""

    session: StoreSession
    syncer: Syncer
    follower: CatalogFollower
    access: AccessFollower
    registrar: Registrar
    announcer: ReplicaAnnouncer
    engine: Engine
    effects: Effects
    election: Elector
    collector: Collector
    api: ApiServer
    worker: Worker | None


class Scheduler:
    """Starts and stops a scheduler. Main thread only."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def start(self) -> None:
        """Start all parts. Raises NimbusError: a part cannot start; the message names it and what to do."""
        parts = self._parts
        parts.api.start()  # a busy port is found before anything else is touched
        parts.session.add_listener(self._on_session)
        parts.access.start()
        parts.syncer.start()
        parts.follower.start()
        parts.announcer.start()
        parts.engine.start()
        # Two schedulers with one id may start at the same moment: only the registered one may queue.
        parts.registrar.report_once()
        if not parts.registrar.id_taken:
            parts.election.add_to_leader_lock_queue()
        parts.registrar.start()  # leaves the queue while another scheduler has our id
        parts.collector.start()
        if parts.worker is not None:
            parts.worker.start()

    def _on_session(self, state: SessionState) -> None:
        """Only enqueue: this is kazoo's thread. A new session needs new registrations and watches."""
        if state is SessionState.CONNECTED:
            self._parts.registrar.wake()
            self._parts.follower.wake()
            self._parts.access.wake()

    def stop(self) -> None:
        """Stop all parts. A failure is logged, and the other parts are still stopped."""
        parts = self._parts
        parts.engine.stop_soon()
        parts.registrar.draining()
        parts.collector.stop_soon()
        parts.announcer.stop_soon()
        worker = parts.worker
        if worker is not None:
            shutdown_step("worker drained", worker.drain)
        shutdown_step("lock released", lambda: parts.election.close(STEP))
        shutdown_step("engine stopped", lambda: parts.engine.stop(STEP))
        shutdown_step("effects stopped", parts.effects.close)
        if worker is not None:
            shutdown_step("worker closed", lambda: worker.close(STEP))
        shutdown_step("collector stopped", lambda: parts.collector.stop(STEP))
        shutdown_step("catalog follower stopped", lambda: parts.follower.stop(STEP))
        shutdown_step("replicas withdrawn", lambda: parts.announcer.stop(STEP))
        shutdown_step("registration withdrawn", lambda: parts.registrar.stop(STEP))
        shutdown_step("syncer stopped", lambda: parts.syncer.close(STEP))
        shutdown_step("access follower stopped", lambda: parts.access.stop(STEP))
        shutdown_step("api stopped", lambda: parts.api.stop(STEP))
        shutdown_step("session closed", lambda: parts.session.close(STEP))
