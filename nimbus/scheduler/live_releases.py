"""Finds the releases in use, which a collection of garbage must keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from blobsync import ReleaseRef
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import (
    ActivatePipeline,
    CreateBackfill,
    PublishRelease,
    QueuedCommand,
    StartRun,
)
from nimbus.domain.datasets import Dataset
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import DatasetName
from nimbus.domain.run import Run


class WholeState(Protocol):
    """Reads of complete state.

    All raise StoreUnavailableError, or UnreadableRecordError when a record is of a newer version, or broken:
    the releases that it names may be in use.
    """

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        """Commands that wait."""

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        """The catalog."""

    def all_runs(self) -> tuple[Run, ...]:
        """Live and recently finished runs."""

    def dataset(self, name: DatasetName) -> Dataset | None:
        """A dataset; None: nothing was published."""


class NothingKnownError(NimbusError):
    """The catalog is empty. The usual cause is a wrong `cluster.root` or a lost ensemble."""

    code = "nothing_known"
    exit_code = 4

    def __init__(self) -> None:
        super().__init__(
            "the catalog names no pipeline, so nobody knows which releases are in use; nothing is collected. "
            "Check cluster.root and zookeeper.hosts; if the cluster is new, publish a pipeline first"
        )


def live_releases(state: WholeState) -> frozenset[ReleaseRef]:
    """Releases of all pipelines in the catalog, of runs that have not ended, and of waiting commands.

    They are read in the order in which a release moves: from a command into the catalog, and from there into
    a run. So a release that moves between two reads is seen by the later read.

    Raises:
        NothingKnownError: the catalog is empty.
        StoreUnavailableError: ZooKeeper does not answer.
        UnreadableRecordError: a record of a pipeline or a run cannot be read.
    """
    waiting = [
        ReleaseRef(command.pipeline, digest)
        for queued in state.all_commands()
        if isinstance(
            command := queued.command, PublishRelease | ActivatePipeline | CreateBackfill | StartRun
        )
        and (digest := command.release if isinstance(command, StartRun) else command.digest) is not None
    ]
    records = state.all_pipelines()
    if not records:
        raise NothingKnownError
    known = [
        ReleaseRef(record.name, digest)
        for record in records
        for digest in (record.release, record.published, *record.pinned)
        if digest is not None
    ]
    live = [run for run in state.all_runs() if not run.state.is_final]
    running = [ReleaseRef(run.pipeline, run.release) for run in live]
    return frozenset((*waiting, *known, *running, *_of_children(live)))


def _of_children(live: Iterable[Run]) -> Iterator[ReleaseRef]:
    """Releases of child runs that live runs may still start."""
    for run in live:
        for task in run.tasks.in_order():
            spec = task.spec.children
            if spec is not None and spec.release is not None and not task.state.is_final:
                yield ReleaseRef(spec.pipeline, spec.release)
