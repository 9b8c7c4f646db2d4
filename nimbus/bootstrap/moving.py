"""The content of an exported state, read by the same code that a new leader uses."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from blobsync import ReleaseRef
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.adapters.store.moving import ClusterState, write_nodes
from nimbus.scheduler.live_releases import live_releases

CLOSE_LIMIT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The parts of a state that are checked before a cluster is moved."""

    pipelines: int
    runs: int
    open_attempts: tuple[str, ...]
    releases: frozenset[ReleaseRef]
    """Releases in use, which must be in the bucket."""


def contents_of(state: ClusterState) -> Contents:
    """Read all pipelines and runs of a state, through a temporary database.

    Raises:
        UnreadableRecordError: one of them is broken, or of a newer release.
    """
    with tempfile.TemporaryDirectory(prefix="nimbus-state-") as folder:
        session = SqliteSession(Path(folder) / "state.db")
        session.start()
        try:
            calls_on(session).ensure("/state")
            write_nodes(calls_on(session), "/state", state.nodes)
            whole = TreeWholeState(calls_on(session), "/state")
            pipelines, runs = whole.all_pipelines(), whole.all_runs()
            releases = live_releases(whole) if pipelines else frozenset[ReleaseRef]()
        finally:
            session.close(CLOSE_LIMIT)
    return Contents(
        pipelines=len(pipelines),
        runs=len(runs),
        open_attempts=tuple(str(attempt) for run in runs for attempt in run.open_attempts()),
        releases=releases,
    )
