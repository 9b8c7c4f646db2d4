"""Shipped fakes with real semantics: a board and a log store in a folder that processes share.

For tests, and for running a worker without ZooKeeper. Slots are filled by link(2), so create-once
holds between processes as in ZooKeeper; two slots together are filled under a lock. `cut_off` makes
the board unreachable for all its users.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from nimbus.domain.ids import AttemptId, ClusterId, WorkerId
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.workers import Assignment, WorkerInfo
from nimbus.ports import AttemptWithdrawnError, Enqueue, Kept, StoreUnavailableError
from nimbus.records import ASSIGNMENT, CLAIM, END
from nimbus.worker.files import read_if_there, write_atomic, write_once
from nimbus.worker.identity import own_process
from nimbus.worker.procfs import is_alive

_WATCH_EVERY_S = 0.02


class FileBoard:
    """See `nimbus.ports.AttemptBoard`. Watches are polled by a thread `file-board`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._down = root / "down"
        self._lock = threading.Lock()
        self._watches: list[tuple[Path, object, Enqueue]] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # Methods for a test in the role of the leader.

    def add_attempt(self, attempt: str) -> None:
        """Create an attempt's slots."""
        self._place(attempt).mkdir(parents=True)

    def remove_attempt(self, attempt: str) -> None:
        """Archive an attempt: its slots do not exist any more."""
        place = self._place(attempt)
        place.rename(place.with_name(f".{attempt}"))

    def assign(self, worker: str, order: Assignment) -> None:
        """Give an order."""
        folder = self._root / "workers" / worker
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / order.attempt, ASSIGNMENT.encode(order))

    def unassign(self, worker: str, attempt: str) -> None:
        """Withdraw an order."""
        (self._root / "workers" / worker / attempt).unlink(missing_ok=True)

    def request_stop(self, attempt: str) -> None:
        """Request that an attempt is stopped."""
        write_atomic(self._place(attempt) / "stop", b"")

    def cut_off(self, *, down: bool) -> None:
        """Make the board unreachable, or reachable again."""
        if down:
            self._root.mkdir(parents=True, exist_ok=True)
            self._down.touch()
        else:
            self._down.unlink(missing_ok=True)

    # The port.

    def cluster(self) -> ClusterId:
        """See `nimbus.ports.AttemptBoard`: a folder is a cluster."""
        return ClusterId(hashlib.sha256(str(self._root.resolve()).encode()).hexdigest()[:16])

    def claim(self, claim: Claim) -> Claim:
        """See `nimbus.ports.AttemptBoard`."""
        with self._slots_of(claim.attempt) as place:
            return self._fill_claim(place, claim)

    def fill(self, filled: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        """See `nimbus.ports.AttemptBoard`. Fills one after the other."""
        return [self._fill_one(record) for record in filled]

    def _fill_one(self, record: Claim | End) -> Claim | End | None:
        try:
            if isinstance(record, End):
                return self.end(record)
            standing = self.claim(record)
            if standing.nonce == record.nonce:
                self.beat(AttemptId.parse(record.attempt), {})
        except AttemptWithdrawnError:
            return None
        return standing

    def refuse(self, claim: Claim, end: End) -> Claim:
        """See `nimbus.ports.AttemptBoard`. Atomic for readers, but not if the process is killed."""
        with self._slots_of(claim.attempt) as place:
            if not (place / "claim").exists() and (place / "end").exists():
                raise AttemptWithdrawnError(claim.attempt)
            standing = self._fill_claim(place, claim)
            if standing == claim:
                write_once(place / "end", END.encode(end))
            return standing

    def end(self, end: End) -> End:
        """See `nimbus.ports.AttemptBoard`."""
        with self._slots_of(end.attempt) as place:
            path = place / "end"
            claim = read_if_there(place / "claim")
            if end.nonce is not None and (
                claim is None or CLAIM.decode(claim, str(place)).nonce != end.nonce
            ):
                raise AttemptWithdrawnError(end.attempt)
            write_once(path, END.encode(end))
            return END.decode(path.read_bytes(), str(path))

    def read(self, attempt: AttemptId, changed: Enqueue | None = None) -> Slots:
        """See `nimbus.ports.AttemptBoard`."""
        self._reach()
        place = self._place(str(attempt))
        if changed is not None:
            self._watch(place, changed)
        with self._alone():
            claim, end = read_if_there(place / "claim"), read_if_there(place / "end")
        beat = read_if_there(place / "beat")
        pid, ticks, progress = json.loads(beat) if beat else (0, 0, {})
        sent = read_if_there(place / "submitted")
        return Slots(
            claim=CLAIM.decode(claim, str(place)) if claim else None,
            end=END.decode(end, str(place)) if end else None,
            beating=beat is not None and is_alive(pid, ticks),
            stop_requested=(place / "stop").exists(),
            submitted=ClusterDriver(**json.loads(sent)) if sent else None,
            progress=progress,
            checkpoint=None if (kept := read_if_there(place / "checkpoint")) is None else kept.decode(),
        )

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        """See `nimbus.ports.AttemptBoard`."""
        return {attempt: self.read(attempt, changed) for attempt, changed in attempts.items()}

    def beat(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """See `nimbus.ports.AttemptBoard`. A beat counts while the process that wrote it lives."""
        own = own_process()
        document = json.dumps([own.pid, own.start_ticks, dict(progress)]).encode()
        write_atomic(self._known(str(attempt)) / "beat", document)

    def keep_checkpoint(self, attempt: AttemptId, nonce: str, checkpoint: str) -> None:
        """See `nimbus.ports.AttemptBoard`."""
        with self._slots_of(str(attempt)) as place:
            claim = read_if_there(place / "claim")
            ours = claim is not None and CLAIM.decode(claim, str(place)).nonce == nonce
            if not ours or (place / "end").exists():
                raise AttemptWithdrawnError(str(attempt))
            write_atomic(place / "checkpoint", checkpoint.encode())

    def note_submitted(self, attempt: AttemptId, driver: ClusterDriver) -> datetime:
        """See `nimbus.ports.AttemptBoard`."""
        place = self._known(str(attempt)) / "submitted"
        write_once(place, json.dumps(asdict(driver)).encode())
        return datetime.fromtimestamp(place.stat().st_mtime, UTC)

    def report(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """See `nimbus.ports.AttemptBoard`."""
        place = self._known(str(attempt)) / "beat"
        if (data := read_if_there(place)) is not None:
            pid, ticks, _ = json.loads(data)
            write_atomic(place, json.dumps([pid, ticks, dict(progress)]).encode())

    def attempt_key(self) -> bytes:
        """See `nimbus.ports.AttemptBoard`."""
        place = self._root / "attempt-key"
        if not place.exists():
            write_once(place, secrets.token_bytes(32))
        return place.read_bytes()

    def assignments(self, worker: WorkerId, changed: Enqueue | None = None) -> tuple[Assignment, ...]:
        """See `nimbus.ports.AttemptBoard`."""
        self._reach()
        folder = self._root / "workers" / worker
        folder.mkdir(parents=True, exist_ok=True)
        if changed is not None:
            self._watch(folder, changed)
        found = ((path, read_if_there(path)) for path in sorted(folder.iterdir()) if path.name[0] != ".")
        return tuple(ASSIGNMENT.decode(data, str(path)) for path, data in found if data is not None)

    def close(self) -> None:
        """End the watching thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _place(self, attempt: str) -> Path:
        return self._root / "attempts" / attempt

    @staticmethod
    def _fill_claim(place: Path, claim: Claim) -> Claim:
        path = place / "claim"
        write_once(path, CLAIM.encode(claim))
        return CLAIM.decode(path.read_bytes(), str(path))

    @contextmanager
    def _slots_of(self, attempt: str) -> Iterator[Path]:
        """The folder of an existing attempt's slots, locked against other writers."""
        with self._alone():
            yield self._known(attempt)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the slots against all other processes and threads."""
        self._root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _reach(self) -> None:
        try:
            fd = os.open(self._down, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return
        os.write(fd, b".")  # one for each refused call
        os.close(fd)
        raise StoreUnavailableError(f"the board is cut off; remove {self._down} to mend it")

    def refused_calls(self) -> int:
        """How many calls failed since the board was cut off."""
        return self._down.stat().st_size

    def _known(self, attempt: str) -> Path:
        self._reach()
        place = self._place(attempt)
        if not place.is_dir():
            raise AttemptWithdrawnError(attempt)
        return place

    def _watch(self, folder: Path, changed: Enqueue) -> None:
        with self._lock:
            known = any(path == folder and found is changed for path, _seen, found in self._watches)
            if not known:
                self._watches.append((folder, _names(folder), changed))
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="file-board", daemon=True)
                self._thread.start()

    def _follow(self) -> None:
        while not self._closing.wait(_WATCH_EVERY_S):
            with self._lock:
                fired = [watch for watch in self._watches if _names(watch[0]) != watch[1]]
                self._watches = [watch for watch in self._watches if watch not in fired]
            for _folder, _seen, changed in fired:
                changed()


def _names(folder: Path) -> object:
    try:
        return frozenset(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return None


class FileLogs:
    """See `nimbus.ports.LogArchive`: one file for each attempt."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, attempt: AttemptId, offset: int, data: bytes, kept: Kept = Kept.LOG) -> None:
        """See `nimbus.ports.LogArchive`."""
        self._root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._place(attempt, kept), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        """See `nimbus.ports.LogArchive`."""
        for attempt, data in logs.items():
            self.append(attempt, 0, data)

    def read(self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: Kept = Kept.LOG) -> bytes:
        """See `nimbus.ports.LogArchive`."""
        return (read_if_there(self._place(attempt, kept)) or b"")[offset : offset + limit]

    def size(self, attempt: AttemptId) -> int:
        """See `nimbus.ports.LogArchive`."""
        return len(read_if_there(self._place(attempt, Kept.LOG)) or b"")

    def _place(self, attempt: AttemptId, kept: Kept) -> Path:
        return self._root / (str(attempt) if kept is Kept.LOG else f"{attempt}.{kept}")


class RecordingRegistrations:
    """See `nimbus.ports.Registrations`: remembers what was published."""

    def __init__(self) -> None:
        self.workers: list[WorkerInfo] = []
        self.schedulers: list[SchedulerInfo] = []
        self._mark = ""

    def publish_scheduler(self, info: SchedulerInfo) -> datetime | None:
        """See `nimbus.ports.Registrations`."""
        self.schedulers.append(info)
        return None

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        """See `nimbus.ports.Registrations`."""
        self.workers.append(info)
        return None

    def data_mark(self, mark: str) -> str:
        """See `nimbus.ports.Registrations`."""
        self._mark = self._mark or mark
        return self._mark

    def withdraw(self) -> None:
        """See `nimbus.ports.Registrations`."""
        self.workers.clear()
        self.schedulers.clear()
