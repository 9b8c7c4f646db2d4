"""An attempt's folder on its worker's disk: the only place that knows its layout.

    <work_dir>/attempts/<attempt>/     mode 0700
        order.json      the assignment; no secrets
        lock            flock held by the runner as long as it lives; holds its pid and start ticks
        session.json    the Spark Connect session of a task in `mode: connect`; no secrets
        claim.json      the CLAIM that this folder's runner won
        exit.json       the exit record, first writer wins; what END is to say
        delivered       END is in ZooKeeper and the log is stored (or nobody wants them any more)
        log             standard output and error of the driver
        log.stored      how many bytes of the log are stored
        runner.log      what the runner itself has to say
        driver.json     read by the driver
        context.json    read by the task's code
        work/           the driver's own, and its user's if tasks run as another one (`give_to`)
            progress.json, result.json, checkpoint.json, done
            parts/                 notes of what the task has put into the bucket of outputs itself
            spark-local/, tmp/     scratch, emptied by the runner at the end
        output/         what the task writes, if outputs are kept in a bucket; removed at the end

Nothing below `work` is trusted: links there are not followed, and what is read there has a bound.
Several processes use a folder at once. Every file that another one may read meanwhile is written whole; the
driver's two are there before it is. Any thread may call it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nimbus import checkpoint
from nimbus.domain.ids import AttemptId, InvalidNameError
from nimbus.domain.pipeline import Limits
from nimbus.domain.slots import Claim, ConnectSession, End
from nimbus.domain.spark_application import application_id
from nimbus.domain.workers import Assignment
from nimbus.records import ASSIGNMENT, CLAIM, END
from nimbus.result import FILE, LARGEST_BYTES, ResultError, decode
from nimbus.worker.files import (
    read_if_there,
    read_untrusted,
    remove_tree,
    sync_folder,
    write_atomic,
    write_once,
)
from nimbus.worker.process_lock import ProcessLock
from nimbus.worker.procfs import ProcessId
from nimbus.worker.task_user import TaskUser

_MODE = 0o700
_LARGEST_PROGRESS_BYTES = 64 << 10


class AttemptFolder:
    """One attempt's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempt = AttemptId.parse(path.name)
        self.order_file = path / "order.json"
        self.lock_file = path / "lock"
        self._lock = ProcessLock(self.lock_file)
        self.session_file = path / "session.json"
        self.claim_file = path / "claim.json"
        self.exit_file = path / "exit.json"
        self.delivered_file = path / "delivered"
        self.log = path / "log"
        self.log_stored_file = path / "log.stored"
        self.runner_log = path / "runner.log"
        self.driver_file = path / "driver.json"
        self.context_file = path / "context.json"
        self.work = path / "work"
        self.progress_file = self.work / "progress.json"
        self.done_file = self.work / "done"
        self.result_file = self.work / FILE
        self.checkpoint_file = self.work / checkpoint.FILE
        self.spark_local = self.work / "spark-local"
        self.scratch = self.work / "tmp"
        self.noted = self.work / "parts"
        self.output = path / "output"

    @classmethod
    def of(cls, work_dir: Path, attempt: AttemptId) -> AttemptFolder:
        """The folder of an attempt, there or not."""
        return cls(work_dir / "attempts" / str(attempt))

    @classmethod
    def of_claim(cls, claim: Claim | None) -> AttemptFolder | None:
        """The folder that a claim names, there or not. Nothing is sure: the path comes from ZooKeeper."""
        path = Path((claim.folder if claim is not None else None) or "")
        is_ours = claim is not None and path.is_absolute() and path.name == claim.attempt
        return cls(path) if is_ours else None

    @classmethod
    def all_in(cls, work_dir: Path) -> Iterator[AttemptFolder]:
        """All folders below a worker's own, by name. What is no attempt's is passed over."""
        root = work_dir / "attempts"
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if not (path / "order.json").is_file():
                continue
            try:
                yield cls(path)
            except InvalidNameError:  # somebody else's folder: leave it alone
                continue

    def create(self, order: Assignment) -> None:
        """Make the folder, with its order. Safe to repeat.

        Raises:
            OSError: the disk is full, or the place cannot be written.
        """
        for folder in (self.path, self.work, self.spark_local, self.scratch):
            folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        write_atomic(self.order_file, ASSIGNMENT.encode(order))

    def give_to(self, user: TaskUser) -> None:
        """Give `work`, made anew, to the driver's user, and let that user read what its driver reads.

        Raises:
            OSError: the disk is full, or we may not.
        """
        for file in (self.driver_file, self.context_file):
            file.chmod(0o640)
            os.chown(file, -1, user.gid)
        remove_tree(self.work)
        for folder in (self.work, self.spark_local, self.scratch):
            folder.mkdir(mode=_MODE)
        for folder in (self.spark_local, self.scratch, self.work):  # last what makes the others theirs
            os.chown(folder, user.uid, user.gid)
        os.chown(self.path, -1, user.gid)
        self.path.chmod(0o710)

    @property
    def exists(self) -> bool:
        """It was created: its order stands in it."""
        return self.order_file.is_file()

    def order(self) -> Assignment:
        """The assignment that the attempt runs under."""
        return ASSIGNMENT.decode(self.order_file.read_bytes(), str(self.order_file))

    def try_lock(self, holder: ProcessId) -> int | None:
        """Become the attempt's runner: take the lock for as long as the returned descriptor is open.

        Returns:
            None when a living runner holds it.
        """
        return self._lock.take(holder)

    def is_locked(self) -> bool:
        """A runner of the attempt is alive."""
        return self._lock.is_held()

    def last_runner(self) -> ProcessId | None:
        """Who took the lock last in this boot, dead or alive."""
        return self._lock.last_holder()

    def note_session(self, session: ConnectSession) -> None:
        """Note where the attempt's Connect session is, for the process that must release it."""
        write_atomic(self.session_file, json.dumps(asdict(session)).encode())

    def session(self) -> ConnectSession | None:
        """The attempt's Connect session, if it has one."""
        data = read_if_there(self.session_file)
        return ConnectSession(**json.loads(data)) if data is not None else None

    def record_claim(self, claim: Claim) -> None:
        """Note the CLAIM that we won."""
        write_atomic(self.claim_file, CLAIM.encode(claim))

    def claim(self) -> Claim | None:
        """The CLAIM that this folder's runner won."""
        data = read_if_there(self.claim_file)
        return CLAIM.decode(data, str(self.claim_file)) if data is not None else None

    def record_exit(self, end: End) -> End:
        """Fill the exit record, once.

        Returns:
            What stands there: ours, or that of who was faster.
        """
        write_once(self.exit_file, END.encode(end))
        return END.decode(self.exit_file.read_bytes(), str(self.exit_file))

    def exit_record(self) -> End | None:
        """How the attempt ended, if that is known."""
        data = read_if_there(self.exit_file)
        return END.decode(data, str(self.exit_file)) if data is not None else None

    @property
    def is_delivered(self) -> bool:
        """Nothing is left to be done but to remove the folder one day."""
        return self.delivered_file.exists()

    def mark_delivered(self, why: str) -> None:
        """Note that nobody needs to look at this attempt again."""
        write_atomic(self.delivered_file, f"{why}\n".encode())

    def age_s(self, now_s: float) -> float:
        """Seconds since `mark_delivered`, or, before that, since the order was written; by the wall clock."""
        file = self.delivered_file if self.is_delivered else self.order_file
        return now_s - file.stat().st_mtime

    def progress(self) -> dict[str, Any]:
        """What the driver, or user code, wrote as its progress; empty: nothing that counts."""
        try:
            found = json.loads(read_untrusted(self.progress_file, _LARGEST_PROGRESS_BYTES) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def result(self) -> dict[str, Any] | None:
        """What the task gave as its result; None: nothing.

        Raises:
            ResultError: no JSON object, or a large one.
        """
        if not self.result_file.is_symlink() and not self.result_file.exists():
            return None
        data = read_untrusted(self.result_file, LARGEST_BYTES + 1)
        if data is None:
            raise ResultError(f"{FILE} is no regular file, or larger than {LARGEST_BYTES} bytes")
        return decode(data)

    def checkpoint(self) -> str | None:
        """What the task gave as its last checkpoint, as JSON; None: nothing, or nothing that counts."""
        return checkpoint.checked(read_untrusted(self.checkpoint_file, checkpoint.LARGEST_BYTES))

    def application(self) -> str | None:
        """Id of the attempt's Spark application, as its progress told it last."""
        return application_id(self.progress().get("application"))

    def came_to_its_end(self) -> bool:
        """The driver wrote its mark after the task's code had returned."""
        try:
            return stat.S_ISREG(os.lstat(self.done_file).st_mode)
        except OSError:
            return False

    def log_limit(self) -> int:
        """Most bytes of the log that are kept; the default, if the driver's plan is not there whole."""
        try:
            return int(json.loads(self.driver_file.read_bytes())["limits"]["log_bytes"])
        except (FileNotFoundError, ValueError, KeyError):
            return Limits().log_bytes

    def log_size(self) -> int:
        """Bytes of the driver's log."""
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0

    def log_stored(self) -> int:
        """How many bytes of the log are known to be stored."""
        return int(read_if_there(self.log_stored_file) or b"0")

    def note_log_stored(self, size_bytes: int) -> None:
        """Remember how far the log is stored, for the process that goes on with it."""
        write_atomic(self.log_stored_file, str(size_bytes).encode())

    def output_prefix(self) -> str:
        """Where the attempt's output is to lie, as the driver was told."""
        return str(json.loads(self.context_file.read_bytes())["data"]["output"])

    def empty_scratch(self) -> None:
        """Remove Spark's local files, the temporary ones, and what is left of an output for a bucket."""
        for folder in (self.spark_local, self.scratch, self.output):
            remove_tree(folder)

    def discard(self) -> None:
        """Remove all of it. What a task left as it found it takes a few calls, and anything else a walk."""
        try:
            for file in (self.done_file, self.log, self.driver_file, self.context_file):
                file.unlink()
            for folder in (self.scratch, self.work, self.path):
                folder.rmdir()
        except OSError:
            remove_tree(self.path)

    def remove(self) -> None:
        """Remove all of it, the order last: half a removal is then finished later."""
        for path in self.path.iterdir():
            if path.is_dir():
                remove_tree(path)
            elif path != self.order_file:
                path.unlink(missing_ok=True)
        remove_tree(self.path)
        sync_folder(self.path.parent)
