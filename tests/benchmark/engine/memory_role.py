"""The process that measures turns: the real engine with a store in memory, and the CPU time of its thread.

A turn is everything that the engine does from an event until it waits for the next one: it takes the news,
reads what changed, decides, and computes when it must wake. CPU time of the store's methods is not counted.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from leader import FencingToken, Leadership, Participant
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.cluster import TreeCommandQueue
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.domain.commands import Command, PublishRelease, SetOwner, StartRun
from nimbus.domain.ids import AttemptId, HostId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import ArchiveRun, BuildRun, PrepareRelease
from nimbus.engine.events import AttemptChanged, CommandsChanged, ReleasePrepared, RunArchived
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.telemetry.engine import EngineMetrics
from nimbus.telemetry.logging import configure
from tests.benchmark.engine.shapes import described, digest_of, place_of, run_built, spec_of
from tests.nimbus.dict_cluster import ROOT, DictCluster, DictLeaderStore

TASKS = 10
_PIPELINE = PipelineName("turns")
_ANSWER_S = 120.0
_SLOTS = 10
_REST_S = 0.0005
_LEADERSHIP = Leadership(
    1,
    FencingToken(path="/epoch", version=0, epoch=1),
    Participant(id="s", host="h", port=0, boot_id="b"),
    schema=NEWEST_SCHEMA,
)
_CATCH_UP = 100
"""Most commands that wait at the same time while the state is prepared."""


class Uncounted:
    """Forwards all calls, and adds up the CPU time that its thread uses in them."""

    def __init__(self, inner: Any, spent: list[int]) -> None:
        self._inner, self._spent = inner, spent

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._inner, name)

        def timed(*args: Any, **more: Any) -> Any:
            began = time.thread_time_ns()
            try:
                answer = method(*args, **more)
            finally:
                self._spent[0] += time.thread_time_ns() - began
            return Uncounted(answer, self._spent) if name == "begin" else answer

        return timed


class WithoutNews(DictLeaderStore):
    """A store without watches, so that the engine gets only the news whose turn is measured."""

    def subscribe(self, **_changed: Any) -> None:
        """No watch calls the engine."""


class MemoryRole:
    """See the module. The main thread calls its public methods."""

    def __init__(self) -> None:
        configure(stream=sys.stderr)
        self._cluster = DictCluster()
        calls = self._cluster.calls()
        self._queue, self._board = TreeCommandQueue(calls, ROOT), TreeAttemptBoard(calls, ROOT)
        self._spent = [0]
        self._begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Whether it leads. The engine asks this when it begins to process news."""
        self._open: deque[AttemptId] = deque()
        self._asked = 0
        self._pipelines = [_PIPELINE]
        self._specs: dict[str, PipelineSpec] = {}
        self._engine = Engine(
            store_for=lambda _leadership: Uncounted(WithoutNews(self._cluster, 1), self._spent),
            still_leads=self._begin,
            start_effect=self._effect,
            policy=Policy(),
            clock=SystemClock(),
            metrics=EngineMetrics(CollectorRegistry()),
            on_status=lambda: None,
        )

    def prepare(self, live: int, workers: int, teams: int = 1) -> None:
        """Create `live` runs of a chain of ten tasks, and workers with ten slots each.

        With several teams, each has a pipeline, and the runs are theirs in turn.
        """
        if teams > 1:
            self._pipelines = [PipelineName(f"{_PIPELINE}-{team}") for team in range(teams)]
        self._cluster.change(workers={WorkerId(f"w{n}"): _worker(f"w{n}") for n in range(workers)})
        self._engine.start()
        thread = next(thread for thread in threading.enumerate() if thread.name == "nimbus-engine")
        self._cpu = time.pthread_getcpuclockid(thread.ident or 0)
        self._stat = Path(f"/proc/self/task/{thread.native_id}/stat")
        self._engine.elected(_LEADERSHIP)
        for name in self._pipelines:
            what = described(name, "chain", TASKS)
            digest = ReleaseDigest(digest_of(what))
            self._specs[digest] = spec_of(what)
            self._command(PublishRelease(pipeline=name, digest=digest, activate=True))
            self._settle(partial(self._is_known, name))
            if teams > 1:
                self._command(SetOwner(pipeline=name, owner=f"team-{name}"))
        first = self._asked
        while self._asked < first + live:
            for _ in range(min(_CATCH_UP, first + live - self._asked)):
                self._start_run()
            self._settle(lambda: not self._cluster.world.commands)
        wanted = min(live, workers * _SLOTS)
        self._settle(lambda: len(self._open) >= wanted)

    def turns(self, events: int) -> dict[str, list[float]]:
        """CPU times of turns in ms: an END that opens the next task, a new run, and nothing to do."""
        took: dict[str, list[float]] = {"end": [], "nothing": []}
        while len(took["end"]) < events:
            attempt = self._open.popleft()
            cost = self._turn(partial(self._finish, attempt))
            if place_of(attempt.task) + 1 == TASKS:  # its run has ended: start another one
                self._turn(self._start_run)
            else:
                took["end"].append(cost)
            took["nothing"].append(self._turn(self._wake))
            if not self._open:
                self._settle(lambda: len(self._open) > 0)
        took["command"] = [self._turn(self._start_run) for _ in range(max(1, events // 10))]
        return took

    def close(self) -> None:
        """Does nothing: the engine's thread is a daemon."""

    # Called by the engine's thread.

    def _begin(self) -> bool:
        self._begun.put(None)
        return True

    def _effect(self, effect: Any) -> None:
        match effect:
            case PrepareRelease(release):
                self._engine.enqueue(ReleasePrepared(release, self._specs[release.digest]))
            case ArchiveRun(run):
                self._engine.enqueue(RunArchived(run))
            case BuildRun():
                self._engine.enqueue(run_built(effect, self._specs))
            case _:
                pass  # not measured

    # Called by the main thread.

    def _turn(self, cause: Callable[[], None]) -> float:
        """CPU time in ms, from an event until the engine waits again."""
        began = self._rested()
        cause()
        self._begun.get(timeout=_ANSWER_S)
        took_ms = (self._rested() - began) / 1e6
        self._note_opened()
        return took_ms

    def _rested(self) -> int:
        """Wait until the engine's thread is idle. Returns its CPU time in ns, without that of the store."""
        until, before = time.monotonic() + _ANSWER_S, -1
        while (now := time.clock_gettime_ns(self._cpu)) != before or not self._sleeps():
            if time.monotonic() > until:
                raise TimeoutError("the engine does not become idle")
            before = now
            time.sleep(_REST_S)
        while not self._begun.empty():
            self._begun.get_nowait()
        return now - self._spent[0]

    def _sleeps(self) -> bool:
        return self._stat.read_text().rpartition(")")[2].split()[0] == "S"

    def _settle(self, done: Callable[[], bool]) -> None:
        """Let the engine work until a condition is true."""
        until = time.monotonic() + _ANSWER_S
        while not done():
            if time.monotonic() > until:
                raise TimeoutError("the engine does not reach the expected state")
            self._turn(self._wake)

    def _is_known(self, name: PipelineName) -> bool:
        return name in self._cluster.world.pipelines

    def _wake(self) -> None:
        self._engine.enqueue(RunArchived(RunId("nothing")))

    def _command(self, command: Command) -> None:
        self._asked += 1
        self._queue.submit(command, submitted_by="")
        self._engine.enqueue(CommandsChanged())

    def _start_run(self) -> None:
        name = self._pipelines[self._asked % len(self._pipelines)]
        self._command(StartRun(pipeline=name, run_id=RunId(f"r{self._asked}")))

    def _finish(self, attempt: AttemptId) -> None:
        now, text = datetime.now(UTC), str(attempt)
        self._board.claim(Claim(attempt=text, worker=WorkerId("w0"), host=HostId("h"), claimed_at=now))
        self._board.end(End(attempt=text, outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=now))
        self._engine.enqueue(AttemptChanged(attempt))

    def _note_opened(self) -> None:
        commits, self._cluster.commits = self._cluster.commits, []
        self._open.extend(_opened(commits))


def _opened(commits: list[tuple[w.Write, ...]]) -> Iterator[AttemptId]:
    for writes in commits:
        for write in writes:
            if isinstance(write, w.CreateAttempt):
                yield write.attempt


def _worker(name: str) -> WorkerInfo:
    now = datetime.now(UTC)
    return WorkerInfo(
        id=WorkerId(name), host=HostId("h"), hostname="h", pid=1, slots=_SLOTS, version="1",
        started_at=now, reported_at=now,
    )  # fmt: skip
