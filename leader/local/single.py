"""The election of a node without others (Spark's "monarchy"): it leads as soon as its guard says yes.

No ZooKeeper, no session, no network. The guard is called in the background. While it says no or raises, the
node does not lead, and the guard is called again after a growing pause. A call that hangs counts as no, and
the next call waits for its end. As in every election, `ElectionConfig.forced_takeover_after` can overrule a
no.

Not guaranteed: that only one node leads, if a second one is started, unless both have the same `epoch_file`
on one machine. Without that file, epochs begin at 1 with each start of the process, so they cannot fence
anything that outlives the process.

No other node reads the records of this one during an upgrade, so each term has the newest schema that this
node knows.
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
        config: `root` is only a name. The timings of guard, back-off and hand-over apply.
        participant: This participant, as `get_leader` returns it.
        journal: Gets an entry for each change. By default, a `LogJournal`.
        clock: Must continue while the machine sleeps.
        epoch_file: Stores the epoch across restarts, and excludes a second process. Locked from the first
            `add_to_leader_lock_queue` until `close`. That method raises an ElectionStateError if another
            process holds the lock, an ElectionConfigError if the file cannot be opened or locked, and a
            RecordError if it does not contain an epoch number.

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
        """Write a new epoch to the disk before the election has it, so before the node leads in it."""
        if self._epochs is None or not isinstance(request, Transaction):
            return
        for operation in request.operations:
            if isinstance(operation, SetData) and operation.path == self._epoch_path:
                record = decode_epoch(operation.data, operation.path)
                try:
                    self._epochs.raise_to(record.epoch)
                except OSError as exc:
                    raise ZooKeeperUnavailableError(f"the epoch file could not be written: {exc}") from exc


_lock_fds: set[int] = set()  # of the lock files that this process has open


def _close_lock_fds() -> None:
    while _lock_fds:
        os.close(_lock_fds.pop())


# A kernel lock lasts until all copies of its descriptor are closed. So a child closes those that it inherits.
os.register_at_fork(after_in_child=_close_lock_fds)


class EpochFile:
    """The highest epoch ever taken, in a file. Only the process that holds its lock may raise it.

    The lock is a kernel lock (flock) on a second file, `<name>.lock`. It ends when the process ends, also
    after a crash, and also if children of the process live on. It works on one machine, and not on a network
    file system. The file is created with the first epoch; its folder must exist (ElectionConfigError).
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise ElectionConfigError(f"the folder of the epoch file {path} does not exist; make it")
        self._path = path
        self._lock_fd: int | None = None

    def lock(self) -> int:
        """Exclude other processes until `unlock`. Returns the highest epoch so far; 0 if there was none.

        Raises:
            ElectionStateError: Another process holds the lock.
            RecordError: The file does not contain an epoch number.
            ElectionConfigError: One of the two files cannot be opened or read, or cannot be locked there.
        """
        self._lock_fd = self._open_locked()
        try:
            return self._read()
        except (ElectionConfigError, RecordError):
            self.unlock()
            raise

    def _open_locked(self) -> int:
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise _unusable(path, exc) from exc
        _lock_fds.add(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            _close(fd)
            raise ElectionStateError(
                f"another process uses {self._path}: it holds the lock on {path}. End that process, or "
                f"give this one another file"
            ) from exc
        except OSError as exc:
            _close(fd)
            raise ElectionConfigError(
                f"{path} cannot be locked ({exc}); put the file on a local disk"
            ) from exc
        return fd

    def unlock(self) -> None:
        """Release the lock. Safe to repeat."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            _close(fd)

    def raise_to(self, epoch: int) -> None:
        """Write `epoch` to the disk, atomically: a crash leaves the old file or the new one. OSError."""
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
        except OSError as exc:
            raise _unusable(self._path, exc) from exc
        except UnicodeDecodeError:
            text = "bytes that are not text"
        if not text.isdecimal():
            raise RecordError(
                f"{self._path} contains {text[:40]!r} instead of an epoch number. Write a number "
                f"into it that is above every epoch ever used"
            )
        return int(text)


def _close(lock_fd: int) -> None:
    if lock_fd in _lock_fds:  # else this is a forked child, which has closed it
        _lock_fds.remove(lock_fd)
        os.close(lock_fd)


def _unusable(path: Path, cause: OSError) -> ElectionConfigError:
    return ElectionConfigError(f"{path} cannot be opened ({cause}); check its kind and its permissions")
