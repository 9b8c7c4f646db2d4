"""The election of a node that has no others (Spark's "monarchy"): it leads as soon as its guard says yes.

No ZooKeeper, no session, no network. The guard is asked in the background, again and again with a growing
pause while it says no, raises or hangs. Nobody leads before it says yes.

Not guaranteed: that there is one leader, if a second such node is started, unless both are given the same
`epoch_file` on one machine. Without that file epochs begin at 1 with each start of the process, so they
cannot fence what outlives the process.

A single node has no others to upgrade with, so each term is of the newest schema that it knows.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.elector import Electable, Guard
from leader.errors import ElectionConfigError, ElectionStateError, RecordError, ZooKeeperUnavailableError
from leader.journal import Journal
from leader.local.memory import MemoryElection, MemoryElector
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Create, EnsurePath, Request, SetData, Transaction
from leader.protocol.terms import EpochRecord, decode_epoch, encode_epoch


class SingleElector(MemoryElector):
    """See the module, and `leader.elector.Elector`. Threads: those of `MemoryElector`.

    Args:
        config: `root` is a name only. Timings of guard, back-off and hand-over apply.
        participant: This participant, as `get_leader` returns it.
        guard: Asked in each term before it is confirmed.
        electable: Told of each leadership.
        journal: Told of each change; writes log lines without it.
        clock: Must not stand still while the machine sleeps.
        epoch_file: Keeps the epoch over restarts, and keeps a second process out. Locked from the first
            `add_to_leader_lock_queue` until `close`. That call raises an ElectionStateError if another
            process holds the lock, and a RecordError if the file holds something else.

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
        super().__init__(
            MemoryElection(clock=clock, before=self._before),
            config=config,
            participant=participant,
            guard=guard,
            electable=electable,
            journal=journal,
        )

    def _prepare(self) -> None:
        if self._epochs is not None:
            highest = self._epochs.lock()
            self._election.write(EnsurePath(self._root))
            record = EpochRecord(highest, schema=self._schema)
            self._election.write(Create(self._epoch_path, encode_epoch(record)))

    def _end(self, countdown: Countdown) -> None:
        try:
            super()._end(countdown)
        finally:
            if self._epochs is not None:
                self._epochs.unlock()

    def _before(self, request: Request) -> None:
        """Write a new epoch to the disk before the election has it, so before anybody leads in it."""
        if self._epochs is None or not isinstance(request, Transaction):
            return
        for operation in request.operations:
            if isinstance(operation, SetData) and operation.path == self._epoch_path:
                record = decode_epoch(operation.data, operation.path)
                try:
                    self._epochs.raise_to(record.epoch)
                except OSError as exc:
                    raise ZooKeeperUnavailableError(f"the epoch file could not be written: {exc}") from exc


class EpochFile:
    """The highest epoch ever taken, in a file. Only the process that holds its lock may raise it.

    The lock is the kernel's (flock), on a file beside it: it ends with the process, however that dies. It
    holds on one machine, and not on a network file system.

    Args:
        path: Of the file. It is made when first used; its folder must exist.

    Raises:
        ElectionConfigError: The folder does not exist.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise ElectionConfigError(f"the folder of the epoch file {path} does not exist; make it")
        self._path = path
        self._lock_fd: int | None = None

    def lock(self) -> int:
        """Keep other processes out, until `unlock`.

        Returns:
            The highest epoch so far; 0 if there was none.

        Raises:
            ElectionStateError: Another process holds it.
            RecordError: The file holds something else.
        """
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            raise ElectionStateError(
                f"another process leads by {self._path}: it holds {lock_path} locked. End it, or give this "
                f"one a file of its own"
            ) from exc
        self._lock_fd = fd
        try:
            return self._read()
        except (OSError, RecordError):
            self.unlock()
            raise

    def unlock(self) -> None:
        """Let other processes in. Safe to repeat."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def raise_to(self, epoch: int) -> None:
        """Write `epoch` to the disk: old file or new, never a mix. OSError if it cannot be written."""
        fd, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(fd, "wb") as part:
                part.write(f"{epoch}\n".encode())
                part.flush()
                os.fsync(part.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self) -> int:
        try:
            text = self._path.read_text("ascii").strip()
        except FileNotFoundError:
            return 0
        except UnicodeDecodeError:
            text = "bytes that are no text"
        if not text.isdecimal():
            raise RecordError(
                f"{self._path} holds {text[:40]!r}, wanted an epoch number. Write one above every epoch that "
                f"was ever used"
            )
        return int(text)
