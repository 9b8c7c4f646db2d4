"""The state as a whole, or not at all: for those who would do harm if they overlooked something."""

from __future__ import annotations

from nimbus.adapters.store_session import StoreSession, calls_on
from nimbus.adapters.zookeeper.catalog import all_pipelines
from nimbus.adapters.zookeeper.leader_store import read_commands
from nimbus.adapters.zookeeper.paths import Paths
from nimbus.adapters.zookeeper.runs import all_runs
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.run import Run


class ZooKeeperWholeState:
    """Reads that leave nothing out: unlike `ZooKeeperClusterReader`, they do not pass over broken records.

    All raise StoreUnavailableError; those of pipelines and runs UnreadableRecordError, too.
    """

    def __init__(self, session: StoreSession, root: str) -> None:
        self._calls, self._paths = calls_on(session), Paths(root)

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        """Commands that wait. What cannot be read will be refused, so it stands for nothing."""
        return read_commands(self._calls, self._paths)

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        """The catalog."""
        return tuple(all_pipelines(self._calls, self._paths))

    def all_runs(self) -> tuple[Run, ...]:
        """Live and recently finished runs."""
        return tuple(all_runs(self._calls, self._paths))
