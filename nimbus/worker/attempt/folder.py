"""An attempt's folder on its worker's disk: the only place that knows its layout.

    <work_dir>/attempts/<attempt>/     mode 0700
        order.json      the assignment; no secrets
        lock            flock held by the runner as long as it lives; holds its pid and start ticks
        keeper          pid and start ticks of the keeper of the attempt's JVM, until it is given back
        session.json    the Spark Connect session of a task in `mode: connect`; no secrets
        claim.json      the CLAIM that this folder's runner won
        exit.json       the exit record, first writer wins; the content of END
        room            reserved disk space, freed when the attempt ends, for the files that are written then
        delivered       END is in ZooKeeper and the log is stored (or neither is needed any more)
        log             standard output and error of the driver
        log.stored      how many bytes of the log are stored
        runner.log      the log of the runner itself
        driver.json     read by the driver, unless a zygote gives it its plan
        context.json    read by the task's code
        work/           belongs to the driver, and to its user if tasks run as another user (`give_to`)
            progress.json, result.json, checkpoint.json, cost.json, jvm, done
            parts/                 records of objects that the task itself has put into the bucket
            release.tar, bundle.zip      for executors, and for drivers with another interpreter
            spark-local/, tmp/     scratch, emptied by the runner at the end
        output/         the task's output, if outputs are stored in a bucket; removed at the end

Nothing below `work` is trusted: links there are not followed, and reads have a size limit.
Several processes use a folder at once. Files that another process may read at the same time are written
atomically; the driver's two files are written before it starts. Any thread may call it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nimbus import checkpoint
from nimbus.domain.attempts.slots import Claim, ConnectSession, End, application_id
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, InvalidNameError
from nimbus.domain.pipelines.pipeline import Limits
from nimbus.records import ASSIGNMENT, CLAIM, END
from nimbus.result import FILE, LARGEST_BYTES, ResultError, decode
from nimbus.worker.host.files import (
    drop_short_path,
    read_if_there,
    read_untrusted,
    remove_tree,
    reserve,
    short_path_of,
    sync_folder,
    write_atomic,
    write_once,
)
from nimbus.worker.host.identity import ProcessLock, process_in, process_text
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.task_user import TaskUser

_MODE = 0o700
_ROOM_BYTES = 64 << 10
"""Enough for an exit record with the largest result, and the small files after it."""
_LARGEST_OBJECT_BYTES = 64 << 10
_LARGEST_NOTE_BYTES = 512


class AttemptFolder:
    """The folder of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempt = AttemptId.parse(path.name)
        self.order_file = path / "order.json"
        self.lock = ProcessLock(path / "lock")
        """Held by the attempt's runner while it lives."""
        self.jvm_keeper_file = path / "keeper"
        self.session_file = path / "session.json"
        self.claim_file = path / "claim.json"
        self.exit_file = path / "exit.json"
        self.room_file = path / "room"
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
        self.cost_file = self.work / "cost.json"
        self.jvm_file = self.work / "jvm"
        self.spark_local = self.work / "spark-local"
        self.scratch = self.work / "tmp"
        self.noted = self.work / "parts"
        self.release_archive = self.work / "release.tar"
        self.bundle = self.work / "bundle.zip"
        self.output = path / "output"

    @classmethod
    def of(cls, work_dir: Path, attempt: AttemptId) -> AttemptFolder:
        """The folder of an attempt; it may not exist."""
        return cls(work_dir / "attempts" / str(attempt))

    @classmethod
    def of_claim(cls, claim: Claim | None) -> AttemptFolder | None:
        """The folder that a claim names. It may not exist, and its path, from ZooKeeper, is not trusted."""
        path = Path((claim.folder if claim is not None else None) or "")
        is_ours = claim is not None and path.is_absolute() and path.name == claim.attempt
        return cls(path) if is_ours else None

    @classmethod
    def all_in(cls, work_dir: Path) -> Iterator[AttemptFolder]:
        """All attempts' folders below a worker's folder, by name. Other folders are skipped."""
        root = work_dir / "attempts"
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if not (path / "order.json").is_file():
                continue
            try:
                yield cls(path)
            except InvalidNameError:  # not a folder of ours
                continue

    def create(self, order: Assignment) -> None:
        """Create the folder with its order. Safe to repeat. OSError: full, or the place cannot be written."""
        for folder in (self.path, self.work, self.spark_local, self.scratch):
            folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        reserve(self.room_file, _ROOM_BYTES)
        write_atomic(self.order_file, ASSIGNMENT.encode(order))

    def give_to(self, user: TaskUser) -> None:
        """Recreate `work` for the driver's user, who can then read the driver's files. Raises OSError."""
        for file in (self.driver_file, self.context_file):
            with suppress(FileNotFoundError):  # the driver may have got its plan in another way
                file.chmod(0o640)
                os.chown(file, -1, user.gid)
        remove_tree(self.work)
        for folder in (self.work, self.spark_local, self.scratch):
            folder.mkdir(mode=_MODE)
        for folder in (self.spark_local, self.scratch, self.work):  # `work` last: it is the entrance
            os.chown(folder, user.uid, user.gid)
        os.chown(self.path, -1, user.gid)
        self.path.chmod(0o710)

    def short_scratch(self, user: TaskUser | None) -> Path:
        """A short path of `scratch`, for Unix sockets; `scratch` itself if no link can be created.

        `user`: the driver's, if it is another one: a kernel may refuse a link of somebody else.
        """
        try:
            link = short_path_of(self.work)
            try:
                link.symlink_to(self.work)
            except FileExistsError:  # ours of an earlier call, or one that leads somebody else's files in
                users = {os.getuid(), os.getuid() if user is None else user.uid}
                if link.lstat().st_uid not in users or link.readlink() != self.work:
                    return self.scratch
            if user is not None:
                os.chown(link, user.uid, user.gid, follow_symlinks=False)
            return link / self.scratch.name
        except OSError:
            return self.scratch

    @property
    def exists(self) -> bool:
        """True if the folder contains its order."""
        return self.order_file.is_file()

    def order(self) -> Assignment:
        """The attempt's assignment."""
        return ASSIGNMENT.decode(self.order_file.read_bytes(), str(self.order_file))

    def note_jvm_keeper(self, keeper: ProcessId) -> None:
        """Record the keeper of the attempt's JVM, for the process that must end it with the attempt."""
        write_atomic(self.jvm_keeper_file, process_text(keeper))

    def forget_jvm_keeper(self) -> None:
        """The attempt has given its JVM back."""
        self.jvm_keeper_file.unlink()

    def jvm_keeper(self) -> ProcessId | None:
        """The keeper of the JVM that the attempt has, in this boot."""
        return process_in(self.jvm_keeper_file)

    def note_session(self, session: ConnectSession) -> None:
        """Record the attempt's Connect session, for the process that must release it."""
        write_atomic(self.session_file, json.dumps(asdict(session)).encode())

    def session(self) -> ConnectSession | None:
        """The attempt's Connect session, if it has one."""
        data = read_if_there(self.session_file)
        return ConnectSession(**json.loads(data)) if data is not None else None

    def record_claim(self, claim: Claim) -> None:
        """Record the CLAIM that we won."""
        write_atomic(self.claim_file, CLAIM.encode(claim))

    def claim(self) -> Claim | None:
        """The CLAIM that this folder's runner won."""
        data = read_if_there(self.claim_file)
        return CLAIM.decode(data, str(self.claim_file)) if data is not None else None

    def record_exit(self, end: End) -> End:
        """Fill the exit record, once; return that of a faster process, or ours, also if it cannot be written.

        The attempt may have filled the disk. Then END is the only record.
        """
        self.room_file.unlink(missing_ok=True)
        data = END.encode(end)
        try:
            write_once(self.exit_file, data)
        except OSError:
            self.empty_scratch()
            try:
                write_once(self.exit_file, data)
            except OSError:
                return end
        return END.decode(self.exit_file.read_bytes(), str(self.exit_file))

    def exit_record(self) -> End | None:
        """The exit record, if there is one."""
        data = read_if_there(self.exit_file)
        return END.decode(data, str(self.exit_file)) if data is not None else None

    @property
    def is_delivered(self) -> bool:
        """True if only the removal of the folder remains to be done."""
        return self.delivered_file.exists()

    def mark_delivered(self, why: str) -> None:
        """Record that this attempt needs no more work."""
        write_atomic(self.delivered_file, f"{why}\n".encode())

    def age_s(self, now_s: float) -> float:
        """Seconds since `mark_delivered`, or, before that, since the order was written; by the wall clock."""
        file = self.delivered_file if self.is_delivered else self.order_file
        return now_s - file.stat().st_mtime

    def progress(self) -> dict[str, Any]:
        """The progress that the driver or user code wrote; empty if there is none or it is invalid."""
        return _object_in(self.progress_file)

    def spark_cost(self) -> dict[str, Any]:
        """What the driver says that its Spark did; empty if it says nothing valid."""
        return _object_in(self.cost_file)

    def result(self) -> dict[str, Any] | None:
        """The task's result; None if it gave none. ResultError: it is not a JSON object, or too large."""
        if not self.result_file.is_symlink() and not self.result_file.exists():
            return None
        data = read_untrusted(self.result_file, LARGEST_BYTES + 1)
        if data is None:
            raise ResultError(f"{FILE} is no regular file, or larger than {LARGEST_BYTES} bytes")
        return decode(data)

    def checkpoint(self) -> str | None:
        """The task's last checkpoint, as JSON; None if there is none or it is invalid."""
        return checkpoint.checked(read_untrusted(self.checkpoint_file, checkpoint.LARGEST_BYTES))

    def application(self) -> str | None:
        """Id of the attempt's Spark application, from its last progress."""
        return application_id(self.progress().get("application"))

    def jvm(self) -> str:
        """What the driver says about the JVM of its Spark; empty if it says nothing."""
        return (read_untrusted(self.jvm_file, _LARGEST_NOTE_BYTES) or b"").decode(errors="replace")

    def came_to_its_end(self) -> bool:
        """True if the driver wrote its mark after the task's code had returned."""
        try:
            return stat.S_ISREG(os.lstat(self.done_file).st_mode)
        except OSError:
            return False

    def log_limit(self) -> int:
        """Most bytes of the log that are kept; the default if the driver's plan cannot be read."""
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
        """How many bytes of the log are stored."""
        return int(read_if_there(self.log_stored_file) or b"0")

    def note_log_stored(self, size_bytes: int) -> None:
        """Record how many bytes are stored, for the process that continues the upload."""
        write_atomic(self.log_stored_file, str(size_bytes).encode())

    def output_prefix(self) -> str:
        """The place of the attempt's output, from the driver's plan."""
        return str(json.loads(self.context_file.read_bytes())["data"]["output"])

    def empty_scratch(self) -> None:
        """Remove Spark's local files, temporary files, and a local copy of an output for a bucket."""
        drop_short_path(self.work)
        for folder in (self.spark_local, self.scratch, self.output):
            remove_tree(folder)

    def discard(self) -> None:
        """Remove the folder: with a few calls if the task added no files, else by a walk."""
        drop_short_path(self.work)
        try:
            for file in (self.done_file, self.log, self.context_file):
                os.unlink(file)  # noqa: PTH108 - a method of Path takes as long as the call
            for folder in (self.scratch, self.work, self.path):
                os.rmdir(folder)  # noqa: PTH106
        except OSError:
            remove_tree(self.path)

    def remove(self) -> None:
        """Remove the folder, the order last, so that an interrupted removal is finished later."""
        drop_short_path(self.work)
        for path in self.path.iterdir():
            if path.is_dir():
                remove_tree(path)
            elif path != self.order_file:
                path.unlink(missing_ok=True)
        remove_tree(self.path)
        sync_folder(self.path.parent)


def _object_in(file: Path) -> dict[str, Any]:
    """An object that user code may have written; empty if there is none or it is invalid."""
    try:
        document = json.loads(read_untrusted(file, _LARGEST_OBJECT_BYTES) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
