"""Complete reads of the state, for callers that would do harm if a record were missing."""

from __future__ import annotations

from nimbus.adapters.store import datasets
from nimbus.adapters.store.calls import Calls
from nimbus.adapters.store.catalog import all_pipelines
from nimbus.adapters.store.leader_store import queued_commands
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.runs import all_runs
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import DatasetName
from nimbus.domain.run import Run


class TreeWholeState:
    """Reads that skip nothing: unlike `TreeClusterReader`, they raise for unreadable records.

    All raise StoreUnavailableError; those of pipelines and runs UnreadableRecordError, too.
    """

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls, self._paths = calls, Paths(root)

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        """Waiting commands; an unreadable one, which will be refused, is `Unreadable`."""
        return queued_commands(self._paths, self._calls.records(self._paths.commands))

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        """The catalog."""
        return tuple(all_pipelines(self._calls, self._paths))

    def all_runs(self) -> tuple[Run, ...]:
        """Live and recently finished runs."""
        return tuple(all_runs(self._calls, self._paths))

    def dataset(self, name: DatasetName) -> Dataset | None:
        """A dataset; None: nothing was published."""
        return datasets.read(self._calls, self._paths, name)
