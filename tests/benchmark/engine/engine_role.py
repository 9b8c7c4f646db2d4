"""The process of the leader: a real session, election and engine. Effects are simulated without delay."""

from __future__ import annotations

import gc
import os
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from leader import (
    CrashSentinel,
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Phase,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus.adapters.store import runs
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.engine.decision import ArchiveRun, BuildRun, PrepareRelease, ResignLeadership
from nimbus.engine.events import Event, ReleasePrepared, RunArchived
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.ports import LeaderStore
from nimbus.telemetry.engine import EngineMetrics
from nimbus.telemetry.logging import configure

try:  # of commits with `--before` that render in a process of its own
    from nimbus.templates.helper import TemplateHelper as Templates  # type: ignore[import-not-found]
except ImportError:
    from nimbus.templates.client import Templates
from tests.benchmark.engine.shapes import digest_of, run_built, spec_of
from tests.benchmark.engine.usage import usage
from tests.benchmark.leader.clock import now_ns

LONG = timedelta(seconds=30)
_POLL_S = 0.002


class SteppedClock(SystemClock):
    """The machine's clock plus `ahead`."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class TracedMetrics(EngineMetrics):
    """Records, for each name of a decision, how many were written, and when the first and the last."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.decisions: dict[str, list[int]] = {}

    def decided(self, name: str, took_s: float) -> None:
        super().decided(name, took_s)
        now = now_ns()
        noted = self.decisions.setdefault(name, [0, now, now])
        noted[0] += 1
        noted[2] = now


class TimedEngine(Engine):
    """Records the CPU time of each turn in ms: from the end of a wait for news until the next wait."""

    turns_ms: ClassVar[list[float]] = []
    _woke_s: float | None = None

    def collect(self, timeout_s: float | None) -> tuple[Event, ...]:
        if self._woke_s is not None:
            self.turns_ms.append((time.thread_time() - self._woke_s) * 1000)
        found = super().collect(timeout_s)
        self._woke_s = time.thread_time()
        return found


class EngineRole:
    """See the module. The main thread calls its public methods."""

    def __init__(
        self,
        hosts: str,
        root: str,
        name: str = "",
        policy: Policy | None = None,
        session_timeout: timedelta = timedelta(seconds=20),
    ) -> None:
        configure(stream=sys.stderr)
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self.session.start(LONG)
        self._sentinel = CrashSentinel(self.session)
        self._sentinel.start()
        self._root = root
        self._specs: dict[str, Any] = {}
        self._builder, self._templates = ThreadPoolExecutor(1), Templates()
        self._clock, self._metrics = SteppedClock(), TracedMetrics()
        self._elected_ns = self._recovered_ns = 0
        self._elected_cpu_s = self._recovered_cpu_s = 0.0
        self.engine = TimedEngine(
            store_for=self._store,
            still_leads=self._leads,
            start_effect=self._effect,
            policy=policy or Policy(),
            clock=self._clock,
            metrics=self._metrics,
            on_status=self._status,
        )
        self.election = LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(root=root, newest_schema=NEWEST_SCHEMA),
            participant=Participant(name or f"engine-{os.getpid()}", "127.0.0.1", 1, uuid.uuid4().hex),
            guard=lambda: Verdict(True),
            electable=self,
        )
        gc.freeze()  # as a scheduler does after its start
        self.engine.start()

    # Called by the election, as its electable.

    def elected(self, leadership: Leadership) -> None:
        self._elected_ns, self._elected_cpu_s = now_ns(), time.process_time()
        self.engine.elected(leadership)

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.engine.revoked(leadership, reason)

    # Requests.

    def define(self, pipelines: Sequence[dict[str, Any]]) -> None:
        """Add definitions, which the simulated effects look up by release."""
        self._specs |= {digest_of(what): spec_of(what) for what in pipelines}

    def lead(self, within_s: float) -> None:
        """Join the election, and wait until the first turn of this leader is over."""
        self.election.add_to_leader_lock_queue()
        until = time.monotonic() + within_s
        while not self._recovered_ns:
            if time.monotonic() > until:
                raise TimeoutError(f"no leader within {within_s} s")
            time.sleep(_POLL_S)

    def stand_by(self, within_s: float) -> None:
        """Join the election, and wait until it waits for the leader to end."""
        self.election.add_to_leader_lock_queue()
        until = time.monotonic() + within_s
        while self.election.status().phase is not Phase.QUEUED:
            if time.monotonic() > until:
                raise TimeoutError(f"not in the queue within {within_s} s")
            time.sleep(_POLL_S)

    def trace(self) -> dict[str, Any]:
        """Times and counts of what has happened so far."""
        return {
            "elected_ns": self._elected_ns,
            "recovered_ns": self._recovered_ns,
            "cpu_s": self._recovered_cpu_s - self._elected_cpu_s,
            "decisions": dict(self._metrics.decisions),
        }

    def turns_ms(self) -> list[float]:
        """The CPU time of each turn since the last call."""
        taken = self.engine.turns_ms.copy()
        self.engine.turns_ms.clear()
        return taken

    def session_id(self) -> int:
        """The session's id in the transaction log."""
        return self.session.session_id or 0

    def usage(self) -> dict[str, float]:
        """CPU and memory of this process."""
        return usage()

    def step_clock(self, until: float) -> float:
        """Set the engine's wall clock to a Unix time. Returns by how many seconds it is ahead now."""
        self._clock.ahead = timedelta(seconds=until - time.time())
        return self._clock.ahead.total_seconds()

    def close(self) -> None:
        """Close the election, and end."""
        self.election.close(LONG)
        self.engine.stop(LONG)
        self._builder.shutdown()
        self.session.close(LONG)
        self._sentinel.close(LONG)

    # Called by the engine's thread.

    def _store(self, leadership: Leadership) -> LeaderStore:
        return TreeLeaderStore(calls_on(self.session), self._root, leadership.token)

    def _leads(self) -> bool:
        return self.election.is_leader()

    def _leads_in(self, epoch: int) -> bool:
        leadership = self.election.leadership()
        return leadership is not None and leadership.epoch == epoch

    def _status(self) -> None:
        if self.engine.status.recovered_at is not None and not self._recovered_ns:
            self._recovered_ns, self._recovered_cpu_s = now_ns(), time.process_time()

    def _build(self, effect: BuildRun) -> None:
        """Build a run as `nimbus.engine.effects` does: on its own thread."""
        built = run_built(effect, self._specs, self._templates.render)
        if (prepare := getattr(runs, "prepare", None)) is not None:  # older commits have none
            prepare(built.built.result)
        self.engine.enqueue(built)

    def _effect(self, effect: Any) -> None:
        match effect:
            case PrepareRelease(release):
                self.engine.enqueue(ReleasePrepared(release, self._specs[release.digest]))
            case ArchiveRun(run):
                self.engine.enqueue(RunArchived(run))
            case BuildRun():
                self._builder.submit(self._build, effect)
            case ResignLeadership(reason):
                self.election.abdicate(reason)
            case _:
                pass  # not measured
