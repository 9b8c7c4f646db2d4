"""An executor's folder on its worker's disk, with exit records: the only place that knows its layout.

<work_dir>/executors/<id>/     mode 0711, as `tasks`: users of drivers pass through
lock        flock held by the executor as long as it lives; contains its pid and start ticks
exits       exit records of its attempts, one on each line; on disk before they become ENDs, kept until then
log         the log of the executor itself and its zygote
tasks/<attempt>/    like an attempt's own folder, without order, lock and records
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.ids import InvalidNameError
from nimbus.records import END, UnreadableRecordError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host.files import make_passage, read_if_there, remove_tree
from nimbus.worker.host.identity import ProcessLock

NONE_RUNS = "none: the next pooled task starts one"
"""The state that worker and doctor show if no executor runs."""
_MODE = 0o700


class ExecutorFolder:
    """One executor's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = ProcessLock(path / "lock")
        self.exits = path / "exits"
        self.log = path / "log"
        self._tasks = path / "tasks"

    @classmethod
    def new(cls, work_dir: Path) -> ExecutorFolder:
        """Create one with a unique name."""
        path = work_dir / "executors" / uuid.uuid4().hex[:12]
        for folder in (path, path / "tasks"):
            make_passage(folder)
        return cls(path)

    @classmethod
    def all_in(cls, work_dir: Path) -> Iterator[ExecutorFolder]:
        """All executors' folders below a worker's folder."""
        root = work_dir / "executors"
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if (path / "tasks").is_dir():
                yield cls(path)

    @classmethod
    def of_claim(cls, claim: Claim) -> ExecutorFolder | None:
        """The folder of the executor that a claim names. Its path, from ZooKeeper, is not trusted."""
        path = Path(claim.folder or "")
        is_task = path.is_absolute() and path.name == claim.attempt and path.parent.name == "tasks"
        return cls(path.parent.parent) if is_task else None

    def task(self, attempt: str) -> AttemptFolder:
        """The folder of an attempt; it may not exist."""
        return AttemptFolder(self._tasks / attempt)

    def tasks(self) -> Iterator[AttemptFolder]:
        """All existing folders of attempts. Other folders are skipped."""
        for path in sorted(self._tasks.iterdir()) if self._tasks.is_dir() else ():
            try:
                yield AttemptFolder(path)
            except InvalidNameError:
                continue

    def create_task(self, attempt: str) -> AttemptFolder:
        """Create the folder of an attempt."""
        folder = self.task(attempt)
        try:
            os.mkdir(folder.path, _MODE)  # noqa: PTH102 - a method of Path takes as long as the call
        except FileExistsError:  # left by a claim that was not ours
            folder.discard()
            os.mkdir(folder.path, _MODE)  # noqa: PTH102
        for place in (folder.work, folder.scratch):
            os.mkdir(place, _MODE)  # noqa: PTH102
        return folder

    def remove(self) -> None:
        """Remove the folder."""
        remove_tree(self.path)


_log = structlog.get_logger(__name__)

_LARGE_BYTES = 256 << 10


class ExitRecords:
    """A file of records, one on each line, written only by the executor. One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, ends: Iterable[End]) -> None:
        """Write several records durably. On a full disk they exist only as ENDs, or are lost with us."""
        data = b"".join(END.encode(end) + b"\n" for end in ends)
        if not data:
            return
        try:
            data = b"\n" + data  # what is before may be half a line, from when the disk was full
            while data:
                data = data[os.write(self._fd, data) :]
            os.fdatasync(self._fd)
        except OSError as exc:
            _log.error("exit_records_not_on_disk", error=str(exc))

    def all_delivered(self) -> None:
        """Remove the records if there are many: all are ENDs."""
        if os.fstat(self._fd).st_size > _LARGE_BYTES:
            os.ftruncate(self._fd, 0)


def read_exits(path: Path) -> dict[str, End]:
    """The records of a dead executor, by attempt. Incomplete lines are ignored."""
    exits: dict[str, End] = {}
    for line in (read_if_there(path) or b"").splitlines():
        try:
            end = END.decode(line, str(path))
        except UnreadableRecordError:
            continue
        exits[end.attempt] = end
    return exits


def exit_of(path: Path, claim: Claim) -> End | None:
    """The record of one attempt, if it belongs to this claim."""
    end = read_exits(path).get(claim.attempt)
    return end if end is not None and end.nonce == claim.nonce else None
