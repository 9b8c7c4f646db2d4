"""A scheduler and a worker in separate processes, for the test of upgrades.

`python -m tests.nimbus.integration.upgrade_roles scheduler|worker HOSTS ROOT NAME`. Reads requests as JSON
lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeRegistrations
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.domain.ids import AttemptId, HostId, PipelineName, ReleaseDigest, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    FailureStrategy,
    PipelineSpec,
    Retries,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine import leader_term, loop
from nimbus.engine.decision import ArchiveRun
from nimbus.engine.policy import Policy
from tests.benchmark.engine.child import play
from tests.benchmark.engine.engine_role import LONG, EngineRole

EVERY_S = 0.2
"""Interval at which registrations and orders are read."""
SLOTS = 6
KEEP_FINISHED = timedelta(minutes=45)


def digest_of(what: Mapping[str, Any]) -> ReleaseDigest:
    """Digest of the release, which is a pipeline's description."""
    return ReleaseDigest(hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest())


def failures_of(task: str) -> int:
    """How often a task fails before it succeeds, from its name, such as `load-f2`; `bad` always fails."""
    return 10**6 if task == "bad" else int(task.rpartition("-f")[2])


def spec_of(what: Mapping[str, Any]) -> PipelineSpec:
    """The definition of a description: name, tasks with their needs, optionally a cron expression."""
    cron = what.get("cron")
    return PipelineSpec(
        name=PipelineName(what["name"]),
        schedule=None if cron is None else Schedule(cron=cron, timezone="UTC", catchup=CatchUp.ALL),
        failure_strategy=FailureStrategy.END,
        tasks=tuple(
            TaskSpec(
                name=TaskName(name),
                kind=TaskKind.PYTHON,
                script="task.py",
                needs=tuple(TaskName(need) for need in needs),
                retries=Retries(limit=0 if name == "bad" else failures_of(name), delay=timedelta(0)),
            )
            for name, needs in what["tasks"].items()
        ),
    )


class SchedulerRole(EngineRole):
    """Election and engine of one release. It registers itself like a scheduler."""

    def __init__(self, hosts: str, root: str, name: str) -> None:
        leader_term.WORKERS_EVERY_S = loop.LONGEST_WAIT_S = EVERY_S
        super().__init__(
            hosts, root, name, Policy(keep_finished=KEEP_FINISHED, raise_schema_after=timedelta(0))
        )
        self._reader = TreeClusterReader(calls_on(self.session), root)
        self._registrations = TreeRegistrations(calls_on(self.session), root)
        self._ended: dict[str, str] = {}
        now = datetime.now(UTC)
        self._registrations.publish_scheduler(
            SchedulerInfo(
                id=name, boot_id=name, host=HostId("h"), hostname="h", address="http://h", pid=os.getpid(),
                version="1", started_at=now, reported_at=now, role=ElectionRole.QUEUED,
                newest_schema=NEWEST_SCHEMA,
            )
        )  # fmt: skip

    def define(self, pipelines: Sequence[dict[str, Any]]) -> None:
        self._specs |= {digest_of(what): spec_of(what) for what in pipelines}

    def queue(self) -> None:
        """Join the queue, without waiting."""
        self.election.add_to_leader_lock_queue()

    def leads(self) -> bool:
        """Whether the first turn of a term is over."""
        return self.engine.status.recovered_at is not None

    def abdication(self) -> str:
        """The reason of its last abdication, from its registration."""
        return self.election.status().last_abdication or ""

    def ended(self) -> dict[str, str]:
        """Final states of the runs that it has stored in history."""
        return dict(self._ended)

    def _effect(self, effect: Any) -> None:
        if isinstance(effect, ArchiveRun):
            run = self._reader.run(effect.run)
            if run is not None:
                self._ended[run.id] = run.state.value
        super()._effect(effect)


class WorkerRole:
    """Claims and ends attempts through the board of one release. Holds them if the test wants it."""

    def __init__(self, hosts: str, root: str, name: str) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=20)))
        self.session.start(LONG)
        self._id, self._board = WorkerId(name), TreeAttemptBoard(calls_on(self.session), root)
        self._registrations = TreeRegistrations(calls_on(self.session), root)
        self._holding = False
        self._held: dict[AttemptId, str] = {}
        """Claimed attempts without END, with the nonce of their claims."""
        self._executed: list[str] = []
        self._seen: set[AttemptId] = set()
        self._stopping = threading.Event()
        self._publish(draining=False)
        self._thread = threading.Thread(target=self._work, name="upgrade-worker")
        self._thread.start()

    def hold(self, holding: bool) -> None:
        """Whether claimed attempts wait before they end. In runs of `chain`, only retries wait."""
        self._holding = holding

    def drain(self) -> None:
        """Claim no more attempts."""
        self._publish(draining=True)

    def held(self) -> list[str]:
        """The waiting attempts."""
        return [str(attempt) for attempt in tuple(self._held) if self._waits(attempt)]

    def executed(self) -> list[str]:
        """Attempts whose user code ran here."""
        return list(self._executed)

    def close(self) -> None:
        """End the thread and the session."""
        self._stopping.set()
        self._thread.join(LONG.total_seconds())
        self._registrations.withdraw()
        self.session.close(LONG)

    def _publish(self, *, draining: bool) -> None:
        now = datetime.now(UTC)
        info = WorkerInfo(
            id=self._id, host=HostId("h"), hostname="h", pid=os.getpid(), slots=SLOTS, version="1",
            started_at=now, reported_at=now, draining=draining, newest_schema=NEWEST_SCHEMA,
        )  # fmt: skip
        self._registrations.publish_worker(info)

    def _work(self) -> None:
        while not self._stopping.wait(EVERY_S / 4):
            for order in self._board.assignments(self._id):
                attempt = AttemptId.parse(order.attempt)
                if attempt not in self._seen:
                    self._seen.add(attempt)
                    self._claim(attempt)
            for attempt in tuple(self._held):
                stopped = self._board.read(attempt).stop_requested
                if stopped or not self._waits(attempt):
                    self._end(attempt, stopped=stopped)

    def _waits(self, attempt: AttemptId) -> bool:
        return self._holding and (attempt.number > 1 or not attempt.run.startswith("chain-"))

    def _claim(self, attempt: AttemptId) -> None:
        nonce = os.urandom(8).hex()
        claim = Claim(
            attempt=str(attempt), worker=self._id, host=HostId("h"), pid=os.getpid(), start_ticks=1,
            claimed_at=datetime.now(UTC), nonce=nonce,
        )  # fmt: skip
        if self._board.claim(claim) == claim:
            self._board.heartbeat(attempt, {})
            self._executed.append(str(attempt))
            self._held[attempt] = nonce

    def _end(self, attempt: AttemptId, *, stopped: bool) -> None:
        failed = attempt.number <= failures_of(attempt.task)
        outcome = Outcome.STOPPED if stopped else Outcome.FAILED if failed else Outcome.SUCCEEDED
        now, nonce = datetime.now(UTC), self._held[attempt]
        self._board.end(
            End(
                attempt=str(attempt), outcome=outcome, written_by="runner", started_at=now, ended_at=now,
                nonce=nonce,
            )
        )  # fmt: skip
        del self._held[attempt]


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    sys.exit(play({"scheduler": SchedulerRole, "worker": WorkerRole}[kind](*words)))
