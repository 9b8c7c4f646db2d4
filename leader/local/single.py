"""The election of a node that is alone ("monarchy"): it leads at once, as soon as its guard says yes.

No ZooKeeper, no session, no network. The guard applies as ever: it is asked in the background, again and
again with a growing pause while it says no, raises or hangs; until it says yes nobody leads.

Not guaranteed: that there is one leader, if a second such node is started, unless both are given the same
`epoch_file` on one machine. And without that file epochs begin at 1 with each start of the process, so that
they cannot fence what outlives it.

A single node has nobody to upgrade with, so each term is of the newest schema that it knows.
"""

from __future__ import annotations

from pathlib import Path

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.errors import ZooKeeperUnavailableError
from leader.guard import Guard
from leader.journal import Journal
from leader.local.epoch_file import EpochFile
from leader.local.memory import MemoryElection, MemoryElector
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Create, EnsurePath, Request, SetData, Transaction
from leader.protocol.terms import EpochRecord, decode_epoch, encode_epoch
from leader.runtime.callbacks import Electable


class SingleElector(MemoryElector):
    """See the module, and `leader.elector.Elector`. Threads: those of `MemoryElector`.

    Args:
        config: `root` is a name only. Timings of guard, back-off and hand-over apply.
        participant: Who we are.
        guard: Asked in each term before it is confirmed.
        electable: Told of each leadership.
        journal: Told of each change; writes log lines without it.
        clock: Must not stand still while the machine sleeps.
        epoch_file: Keeps the epoch over restarts, and a second process out. Held from the first
            `add_to_leader_lock_queue` until `close`.

    Raises:
        ElectionConfigError: The folder of `epoch_file` does not exist.
    """

    def __init__(
        self,
        *,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        journal: Journal | None = None,
        clock: Clock = boottime,
        epoch_file: Path | None = None,
    ) -> None:
        self._epochs = None if epoch_file is None else EpochFile(epoch_file)
        self._root, self._epoch_path = config.root, ElectionPaths(config.root).epoch
        self._schema = config.newest_schema
        self._own = MemoryElection(clock=clock, before=self._before)
        super().__init__(
            self._own,
            config=config,
            participant=participant,
            guard=guard,
            electable=electable,
            journal=journal,
        )

    def add_to_leader_lock_queue(self) -> None:
        """See `Elector.add_to_leader_lock_queue`.

        Raises:
            ElectionStateError: It was closed; or another process holds the epoch file.
            RecordError: The epoch file holds something else.
        """
        super().add_to_leader_lock_queue()

    def _prepare(self) -> None:
        if self._epochs is not None:
            highest = self._epochs.lock()
            self._own.write(EnsurePath(self._root))
            record = EpochRecord(highest, schema=self._schema)
            self._own.write(Create(self._epoch_path, encode_epoch(record)))

    def _end(self, countdown: Countdown) -> None:
        try:
            super()._end(countdown)
        finally:
            if self._epochs is not None:
                self._epochs.unlock()

    def _before(self, request: Request) -> None:
        """An epoch is on disk before anybody leads in it."""
        if self._epochs is None or not isinstance(request, Transaction):
            return
        for operation in request.operations:
            if isinstance(operation, SetData) and operation.path == self._epoch_path:
                record = decode_epoch(operation.data, operation.path)
                try:
                    self._epochs.raise_to(record.epoch)
                except OSError as exc:
                    raise ZooKeeperUnavailableError(f"the epoch file could not be written: {exc}") from exc
