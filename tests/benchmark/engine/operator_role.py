"""The process of an operator: sends commands, and reads their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.domain.commands import Command, PublishRelease, StartRun
from nimbus.domain.ids import CommandId, PipelineName, ReleaseDigest, RunId
from tests.benchmark.engine.shapes import digest_of
from tests.benchmark.leader.clock import now_ns
from tests.nimbus.outcomes import await_outcome

LONG = timedelta(seconds=30)
_THREADS = 8


class OperatorRole:
    """See the module."""

    def __init__(self, hosts: str, root: str) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=60)))
        self.session.start(LONG)
        self._queue = TreeCommandQueue(calls_on(self.session), root)
        self._reader = TreeClusterReader(calls_on(self.session), root)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="bench-operator")
        self._asked: list[CommandId] = []

    def publish(self, pipelines: Sequence[dict[str, Any]], within_s: float) -> list[str]:
        """Publish and activate pipelines. Returns the texts of the refusals."""
        self._submit([_publication(what) for what in pipelines])
        return self.answers(within_s)

    def start(self, runs: Sequence[tuple[str, str]]) -> int:
        """Request runs, given as pairs of pipeline and id. Returns the time of the first request, at once."""
        began = now_ns()
        self._submit([StartRun(pipeline=PipelineName(name), run_id=RunId(run)) for name, run in runs])
        return began

    def answers(self, within_s: float) -> list[str]:
        """Wait for the answers to all requests. Returns the refusals."""
        asked, self._asked = self._asked, []
        limit = timedelta(seconds=within_s)
        outcomes = list(self._pool.map(lambda command: await_outcome(self._queue, command, limit), asked))
        if (silent := outcomes.count(None)) > 0:
            raise TimeoutError(f"{silent} of {len(asked)} commands have no answer after {within_s} s")
        return [f"{o.code}: {o.message}" for o in outcomes if o is not None and not o.accepted]

    def state(self, run: str) -> str:
        """The state of a run, as ZooKeeper has it."""
        found = self._reader.run(RunId(run))
        return "absent" if found is None else found.state.value

    def close(self) -> None:
        """End the session."""
        self._pool.shutdown()
        self.session.close(LONG)

    def _submit(self, commands: Sequence[Command]) -> None:
        self._asked += self._pool.map(
            lambda command: self._queue.submit(command, submitted_by="bench"), commands
        )


def _publication(what: Mapping[str, Any]) -> PublishRelease:
    return PublishRelease(
        pipeline=PipelineName(what["name"]), digest=ReleaseDigest(digest_of(what)), activate=True
    )
