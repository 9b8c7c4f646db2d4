"""Resource use of an attempt, and the messages when a limit is exceeded."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nimbus.domain.pipelines.pipeline import Limits
from nimbus.worker.attempt.limits import LimitWatch, disk_bytes, impose, memory_bytes
from nimbus.worker.host import procfs

MIB = 1 << 20
HOLDS = """
import os, signal, sys
held = bytearray(os.urandom(1)) * (int(sys.argv[1]) << 20)
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        signal.pause()
print("holds", flush=True)
signal.pause()
"""


@pytest.fixture
def holder() -> Iterator[Callable[..., int]]:
    """Starts a process that uses some MiB, and children that share them. Returns its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mib: int, children: int = 0) -> int:
        arguments = [sys.executable, "-c", HOLDS, str(mib), str(children)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"holds\n"
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("place", ["/proc/thread-self/children", "/none"])
def test_processes_below_are_all_that_a_process_started(
    holder: Callable[..., int], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(procfs, "_CHILDREN", Path(place))
    pid = holder(1, children=3)

    assert len(procfs.below(pid)) == 3
    assert {pid, *procfs.below(pid)} <= set(procfs.below(os.getpid()))


def test_processes_that_proc_hides_from_this_user_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid=1`, the processes of other users are listed, and cannot be read."""
    read = procfs.read_stat

    def hiding(pid: int) -> procfs.ProcessStat | None:
        if pid == 1:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return read(pid)

    monkeypatch.setattr(procfs, "read_stat", hiding)

    assert os.getpid() in {found.id.pid for found in procfs.living()}


def test_memory_of_one_process_is_what_it_holds(holder: Callable[..., int]) -> None:
    used = memory_bytes([holder(100)])

    assert 100 * MIB <= used < 120 * MIB


def test_memory_that_processes_share_is_counted_once(holder: Callable[..., int]) -> None:
    pid = holder(100, children=4)

    assert 100 * MIB <= memory_bytes([pid, *procfs.below(pid)]) < 140 * MIB


def test_process_that_has_ended_uses_no_memory() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert memory_bytes([ended.pid]) == 0


def test_disk_of_folders_is_what_their_files_take(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"x" * MIB)
    (tmp_path / "a" / "b" / "two").write_bytes(b"x" * MIB)
    (tmp_path / "c" / "three").write_bytes(b"x" * MIB)
    os.truncate(tmp_path / "c" / "three", 1 << 40)
    (tmp_path / "c" / "link").symlink_to("/")

    assert 3 * MIB <= disk_bytes([tmp_path / "a", tmp_path / "c"]) < 3 * MIB + (64 << 10)
    assert disk_bytes([tmp_path / "none"]) == 0


def test_watch_says_what_is_used_and_what_the_limit_is(holder: Callable[..., int], tmp_path: Path) -> None:
    pid = holder(100)
    (tmp_path / "file").write_bytes(b"x" * 3 * MIB)

    def said(**limits: int) -> str | None:
        return LimitWatch(Limits(**limits), processes=lambda: [pid], folders=[tmp_path]).check(0.0)

    over_memory, over_disk = said(memory_bytes=64 * MIB), said(disk_bytes=2 * MIB)
    assert over_memory is not None
    assert over_memory.startswith("ended: it used 10")
    assert over_memory.endswith("MiB of memory, and its limit is 64.0 MiB")
    assert over_disk == "ended: it used 3.0 MiB of disk, and its limit is 2.0 MiB"
    assert said() is None
    assert said(memory_bytes=200 * MIB, disk_bytes=20 * MIB) is None


def test_watch_counts_memory_that_processes_share_once(holder: Callable[..., int]) -> None:
    pid = holder(100, children=4)
    watch = LimitWatch(
        Limits(memory_bytes=200 * MIB), processes=lambda: [pid, *procfs.below(pid)], folders=()
    )

    assert watch.check(0.0) is None
    assert 100 * MIB < watch.peak_bytes < 200 * MIB


def test_watch_looks_at_the_disk_seldom_when_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3 * MIB)
    clock = iter([0.0, 4.0, 300.0, 304.0])
    watch = LimitWatch(
        Limits(disk_bytes=4 * MIB), processes=list, folders=[tmp_path], clock=lambda: next(clock)
    )
    assert watch.check(0.0) is None
    (tmp_path / "more").write_bytes(b"x" * 3 * MIB)

    assert watch.check(190.0) is None
    assert watch.check(300.0) == "ended: it used 6.0 MiB of disk, and its limit is 4.0 MiB"


@pytest.mark.parametrize(
    ("limits", "uses_spark", "files", "data"),
    [
        (Limits(), False, None, None),
        (Limits(open_files=100), False, 100, None),
        (Limits(open_files=1 << 40), False, "hard", None),
        (Limits(memory_bytes=MIB), False, None, MIB + (1 << 30)),
        (Limits(memory_bytes=MIB), True, None, None),
    ],
)
def test_kernel_is_told_the_limits_that_it_knows(
    limits: Limits, uses_spark: bool, files: int | str | None, data: int | None
) -> None:
    before = [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA)]
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        impose(limits.open_files, None if uses_spark else limits.memory_bytes)
        found = [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA)]
        os.write(writing, repr(found).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        found = told.read()

    hard = before[0][1]
    expected_files = hard if files == "hard" else files
    assert found == repr(
        [
            before[0] if expected_files is None else (expected_files, expected_files),
            before[1] if data is None else (data, data),
        ]
    )
