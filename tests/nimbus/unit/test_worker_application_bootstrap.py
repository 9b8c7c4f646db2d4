"""Parts of the program of drivers in clusters: files of a task, and the report at its end."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nimbus.attempt import model as m
from nimbus.attempt.life import Life
from nimbus.checkpoint import FILE as CHECKPOINT
from nimbus.worker.application import bootstrap, reports, unpacking
from nimbus.worker.application.gateway import GatewayRefusedError
from nimbus.worker.application.startup import release_archive
from nimbus.worker.application.unpacking import make_folder
from nimbus.worker.data.folder_checks import MARK
from nimbus.worker.host import procfs
from nimbus.worker.host.clock import boottime_s

pytestmark = pytest.mark.timeout(20)  # opening a pipe for reading may wait without end


class FakeGateway:
    """Records its requests."""

    def __init__(self, *, stored: bool = True, refusals: int = 0) -> None:
        self.stored, self.refusals = stored, refusals
        self.endpoints = ("http://127.0.0.1:9",)
        self.posted: list[dict[str, Any]] = []
        self.sent: list[bytes] = []
        self.files: dict[str, bytes] = {}

    def post(self, what: str, said: dict[str, Any], patience_s: float) -> dict[str, Any]:
        del what, patience_s
        self.posted.append(said)
        if len(self.posted) <= self.refusals:
            raise GatewayRefusedError("end: 422")
        return {}

    def send(self, what: str, data: bytes, query: str) -> dict[str, Any]:
        del what, query
        self.sent.append(data)
        return {"stored": self.stored}

    def fetch(self, what: str, place: Path) -> str:
        data = self.files.get(what, b"")
        place.write_bytes(data)
        return hashlib.sha256(data).hexdigest()


class FetchingGateway(FakeGateway):
    """Grants the claim. Its release comes after the answer to a heartbeat, which is `says`."""

    def __init__(self, says: dict[str, Any]) -> None:
        super().__init__()
        self.says = says
        self.beats, self.told, self.ends = 0, threading.Event(), list[dict[str, Any]]()

    def post(self, what: str, said: dict[str, Any], patience_s: float) -> dict[str, Any]:
        if what == "claim":
            return {"granted": True}
        if what == "beat":
            self.beats += 1
            if self.beats > 1:  # the first answer has arrived
                self.told.set()
            return self.says
        self.ends.append(said)
        return {}

    def fetch(self, what: str, place: Path) -> str:
        assert self.told.wait(60)
        return super().fetch(what, place)


def _run(gateway: FakeGateway, archive: bytes, where: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the bootstrap, which may not start its task; return the exit code."""
    startup = _startup(archive, where, monkeypatch) | {
        "driver": {"kind": "python"},
        "driver_id": "folder",
        **dict.fromkeys(("target", "worker", "host"), "x"),
        "timeout_s": None,
        "stop_grace_s": 1.0,
    }
    gateway.files["release.tar"] = archive
    monkeypatch.setenv(bootstrap.VARIABLE, json.dumps(startup))
    monkeypatch.setattr(bootstrap, "Gateway", lambda _: gateway)
    monkeypatch.setattr(bootstrap, "die_with", lambda _: True)
    monkeypatch.setattr(bootstrap, "adopt_orphans", lambda: None)
    monkeypatch.setattr(bootstrap, "TaskProcess", None)
    monkeypatch.setattr(reports, "_HEARTBEAT_S", 0.01)
    return bootstrap.main(where / "program")


def test_task_that_is_stopped_before_its_start_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = FetchingGateway({"stop": True})

    code = _run(gateway, b"".join(release_archive(tmp_path / "none")), tmp_path, monkeypatch)

    (end,) = gateway.ends
    assert (end["status"], end["ordered"], end["started_at"], code) == (None, "stop", None, 1)


def test_attempt_that_is_over_before_the_start_of_its_task_gets_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = FetchingGateway({"outdated": True})

    code = _run(gateway, b"".join(release_archive(tmp_path / "none")), tmp_path, monkeypatch)

    assert (gateway.ends, code) == ([], bootstrap.EXIT_NOT_STARTED)


def test_attempt_without_its_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FetchingGateway({})

    code = _run(gateway, b"no archive", tmp_path, monkeypatch)

    (end,) = gateway.ends
    assert (end["status"], code) == (None, 1)
    assert end["refused"].startswith("the attempt cannot be set up in the cluster: ")


def test_python_that_is_too_old_for_a_task_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "OLDEST_PYTHON", (3, 99))
    gateway = FetchingGateway({})

    code = _run(gateway, b"", tmp_path, monkeypatch)

    (end,) = gateway.ends
    assert (end["status"], code) == (None, 1)
    assert "and a task needs 3.99 or newer" in end["refused"]


@pytest.mark.parametrize(
    ("answer", "looked"),
    [
        ({}, m.BoardRead(m.ClaimHolder.OURS, 0.0)),
        ({"stop": True}, m.BoardRead(m.ClaimHolder.OURS, 0.0, stop_requested=True)),
        ({"outdated": True}, m.BoardRead(m.ClaimHolder.OURS, 0.0, end_filled=True)),
        ({"claimed": False}, m.BoardRead(m.ClaimHolder.NONE, 0.0)),
    ],
)
def test_answer_to_a_heartbeat_is_a_look_at_the_board(
    answer: dict[str, Any], looked: m.BoardRead, tmp_path: Path
) -> None:
    gateway: Any = FetchingGateway(answer)
    beats = reports.HeartbeatThread(gateway, "nonce", tmp_path, tmp_path / "schedulers.json")

    found = beats.answers.get(timeout=60)

    beats.finish()
    assert found._replace(asked_s=0.0) == looked


def test_checkpoint_is_sent_until_a_scheduler_that_sees_the_claim_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_HEARTBEAT_S", 0.01)
    (tmp_path / CHECKPOINT).write_text('{"page": 7}')
    sent: SimpleQueue[str | None] = SimpleQueue()
    answers = iter(({"claimed": False}, {"claimed": True}))

    class LaggingGateway(FakeGateway):
        def post(self, what: str, said: dict[str, Any], patience_s: float) -> dict[str, Any]:
            del what, patience_s
            sent.put(said["checkpoint"])
            return next(answers, {})

    gateway: Any = LaggingGateway()
    beats = reports.HeartbeatThread(gateway, "nonce", tmp_path, tmp_path / "schedulers.json")

    found = [sent.get(timeout=60) for _ in range(3)]

    beats.finish()
    assert found == ['{"page": 7}', '{"page": 7}', None]


class StubbornTask:
    """Ends only by SIGKILL."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return -signal.SIGKILL if signal.SIGKILL in self.signals else None

    def signal(self, number: int) -> None:
        self.signals.append(number)


def _watched(task: Any, terms: m.Terms, done: Path) -> m.State:
    """The state after the end of a task that is asked to stop."""
    life = Life(terms, pace=None)
    for event in (m.ClaimAnswered(m.ClaimHolder.OURS, 0.0), m.Prepared()):
        life.apply(event, boottime_s())
    beats: Any = SimpleNamespace(answers=SimpleQueue())
    beats.answers.put(m.BoardRead(m.ClaimHolder.OURS, 0.0, stop_requested=True))
    bootstrap.watch(task, life, beats, done)
    return life.state


def test_task_that_ignores_a_stop_is_killed_after_its_grace(tmp_path: Path) -> None:
    task = StubbornTask()

    state = _watched(task, m.Terms(stop_grace_s=0.1), tmp_path / "done")

    assert task.signals == [signal.SIGTERM, signal.SIGKILL]
    assert state == m.Clearing(m.Story(-signal.SIGKILL, m.Ordered.STOP))


def test_timeout_of_a_task_goes_on_while_its_machine_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals, polls = list[int](), iter([None, None, None, 0])
    task: Any = SimpleNamespace(poll=lambda: next(polls), signal=signals.append)
    life = Life(m.Terms(timeout_s=3600), pace=None)
    for event in (m.ClaimAnswered(m.ClaimHolder.OURS, 0.0), m.Prepared()):
        life.apply(event, boottime_s())
    woken_s = boottime_s() + 3601
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: woken_s}.__getitem__)

    bootstrap.watch(task, life, cast(Any, SimpleNamespace(answers=SimpleQueue())), tmp_path / "done")

    assert signals == [signal.SIGTERM]
    assert life.state == m.Clearing(m.Story(0, m.Ordered.TIMEOUT))


def test_program_that_ended_before_a_stop_is_a_success(tmp_path: Path) -> None:
    terms = m.Terms(is_program=True)

    state = _watched(SimpleNamespace(poll=lambda: 0), terms, tmp_path / "done")

    assert isinstance(state, m.Clearing)
    assert state.story.is_success(terms)


def test_pipe_in_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")

    assert reports.tail_of(tmp_path / "log") == ""


def test_pipe_in_place_of_an_event_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "app-1.zstd")
    gateway: Any = FakeGateway()

    reports.send_event_log(gateway, "nonce", tmp_path)

    assert gateway.sent == []


def test_pipe_in_place_of_progress_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.json")

    assert reports.progress_in(tmp_path / "progress.json") == {}


@pytest.mark.parametrize("is_there", [True, False], ids=["refused", "missing"])
def test_what_a_task_leaves_is_killed_also_without_handles_of_processes(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_pid: int) -> int:
        raise PermissionError(errno.EPERM, "pidfd_open")

    if is_there:
        monkeypatch.setattr(os, "pidfd_open", refuses)
    else:
        monkeypatch.delattr(os, "pidfd_open")
    with subprocess.Popen(["sleep", "60"]) as left:
        ticks = procfs.start_ticks(left.pid)
        assert ticks is not None

        procfs.kill(procfs.ProcessId(left.pid, ticks + 1))
        assert left.poll() is None, "another process with its pid lives"
        procfs.kill(procfs.ProcessId(left.pid, ticks))

        assert left.wait(60) == -signal.SIGKILL


def test_progress_on_a_file_system_that_fails_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: Path, _limit_bytes: int) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(reports, "read_untrusted", fails)

    assert reports.progress_in(tmp_path / "progress.json") == {}


def test_output_is_not_kept_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_output: Path) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bootstrap, "flush_tree", fails)

    assert "can't start new thread" in bootstrap._flushed(tmp_path)


def test_attempt_runs_in_a_sandbox_that_forbids_signals_of_death(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbids(*_parent: int) -> bool:
        raise OSError(errno.EPERM, "prctl")

    monkeypatch.setattr(bootstrap, "die_with", forbids)
    monkeypatch.setattr(bootstrap, "adopt_orphans", forbids)
    monkeypatch.delenv(bootstrap.VARIABLE, raising=False)

    with pytest.raises(KeyError):  # of what follows
        bootstrap.main(Path("bootstrap.py"))


@pytest.mark.parametrize("text", [b"[" * (40 << 10), b"[]", b"\xff", b'{"stages": 1'])
def test_progress_that_cannot_be_read_is_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "progress.json").write_bytes(text)

    assert reports.progress_in(tmp_path / "progress.json") == {}


def test_event_log_that_is_not_stored_is_sent_no_further(tmp_path: Path) -> None:
    (tmp_path / "app-1.zstd").write_bytes(bytes(1 << 20))
    gateway: Any = FakeGateway(stored=False)

    reports.send_event_log(gateway, "nonce", tmp_path)

    assert len(gateway.sent) == 1


def test_event_log_is_not_sent_for_longer_than_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_EVENT_LOG_PATIENCE_S", -1.0)
    (tmp_path / "app-1.zstd").write_bytes(bytes(1 << 20))
    gateway: Any = FakeGateway()

    reports.send_event_log(gateway, "nonce", tmp_path)

    assert gateway.sent == []


@pytest.mark.parametrize(("fault", "said_again"), [("\udcff is gone", True), ("", False)])
def test_output_that_is_not_kept_stays_so_when_the_end_is_said_in_other_words(
    fault: str, said_again: bool
) -> None:
    gateway: Any = FakeGateway(refusals=1)

    reports.deliver(gateway, {"status": 0, "log_tail": "x", "not_flushed": fault})

    first, second = gateway.posted
    assert (first["not_flushed"], second["log_tail"]) == (fault, "")
    assert bool(second["not_flushed"]) is said_again


def test_startup_document_without_a_token_for_data_means_a_folder() -> None:
    assert bootstrap.data_access({"attempt": "run1.task.1", "data_token": None}, "nonce", ()) is None


def _startup(archive: bytes, where: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A startup document, for the working folder `where`."""
    monkeypatch.chdir(where)
    (where / MARK).touch()
    (where / "program").touch()
    return {
        "release_sha256": hashlib.sha256(archive).hexdigest(),
        "wheels": [],
        "driver": {},
        "context": {"output": str(where / "p" / "r" / "t" / "1"), "inputs": {}},
        "data_token": None,
        "secrets": {},
    }


def _folder_with(archive: bytes, where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    gateway: Any = FakeGateway()
    gateway.files["release.tar"] = archive
    return make_folder(_startup(archive, where, monkeypatch), gateway, where / "program") / "release"


def test_release_is_unpacked_with_its_folders_and_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = tmp_path / "released"
    (released / "tasks").mkdir(parents=True)
    (released / "tasks" / "count.py").write_text("print(1)")
    (released / "tasks" / "run.sh").write_text("#!/bin/sh")
    (released / "tasks" / "run.sh").chmod(0o755)
    (released / "empty").touch()

    release = _folder_with(b"".join(release_archive(released)), tmp_path, monkeypatch)

    assert (release / "tasks" / "count.py").read_text() == "print(1)"
    assert not os.access(release / "tasks" / "count.py", os.X_OK)
    assert os.access(release / "tasks" / "run.sh", os.X_OK)
    assert (release / "empty").read_bytes() == b""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../outside", tarfile.REGTYPE), ("/outside", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)],
)
def test_archive_with_anything_but_files_below_its_folder_is_refused(
    name: str, kind: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type = kind
        entry.linkname = "/etc"
        archive.addfile(entry)

    with pytest.raises(ValueError, match=name):
        _folder_with(packed.getvalue(), tmp_path, monkeypatch)

    assert not (tmp_path / "nimbus" / "outside").exists()


def test_folder_of_outputs_that_is_not_mounted_in_the_cluster_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gateway: Any = FakeGateway()
    gateway.files["release.tar"] = archive = b"".join(release_archive(tmp_path / "none"))
    (tmp_path / "program").touch()
    output = tmp_path / "data" / "p" / "r" / "t" / "1"
    startup = {
        "release_sha256": hashlib.sha256(archive).hexdigest(),
        "wheels": [],
        "driver": {},
        "data_token": None,
        "context": {"output": str(output), "inputs": {}},
    }

    with pytest.raises(ValueError, match="mount it here"):
        make_folder(startup, gateway, tmp_path / "program")

    assert not (tmp_path / "data").exists()
