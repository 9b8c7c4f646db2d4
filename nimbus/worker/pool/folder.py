"""An executor's folder on its worker's disk: the only place that knows its layout.

<work_dir>/executors/<id>/     mode 0711, as `tasks`: users of drivers pass through
lock        flock held by the executor as long as it lives; contains its pid and start ticks
exits       exit records of its attempts, one on each line; the content of their ENDs
log         the log of the executor itself and its zygote
tasks/<attempt>/    like an attempt's own folder, without order, lock and records
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from nimbus.domain.ids import InvalidNameError
from nimbus.domain.slots import Claim
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host.files import make_passage, remove_tree
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
