"""The log of an attempt within its limit: its content for readers, and its size on the disk."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import Limits
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.log import LimitedLog, store_rest, store_some
from nimbus.worker.driver.files import write_plan
from tests.nimbus.worker_bench import Bench

LIMIT = 64 << 10
HALF = LIMIT // 2
ATTEMPT = AttemptId.parse("r.t.1")


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    with closing(Bench(tmp_path)) as bench:
        folder = bench.folder(str(ATTEMPT))
        order = bench.order("task.py", attempt=str(ATTEMPT), limits=Limits(log_bytes=LIMIT))
        folder.create(order)
        write_plan(folder, bench.startup().plan, order)
    return folder


@pytest.fixture
def file(folder: AttemptFolder) -> Path:
    return folder.log


def _text(count: int) -> bytes:
    return b"".join(b"%07d\n" % number for number in range(count // 8))


def _append(file: Path, data: bytes) -> None:
    with file.open("ab") as log:
        log.write(data)


def _all_of(log: LimitedLog, *, complete: bool) -> bytes:
    size = log.size(complete=complete)
    return b"".join(log.read(at, 1000, complete=complete) for at in range(0, size, 1000))


@pytest.mark.parametrize("size", [0, 8, HALF, HALF + 8, LIMIT])
def test_log_within_its_limit_is_whole(file: Path, size: int) -> None:
    _append(file, _text(size))
    log = LimitedLog(file, LIMIT)

    log.free_middle()

    assert _all_of(log, complete=True) == _text(size) == file.read_bytes()


def test_log_that_is_not_there_is_empty(file: Path) -> None:
    log = LimitedLog(file, LIMIT)

    log.free_middle()

    assert (log.size(complete=True), log.read(0, 10, complete=True)) == (0, b"")


def test_log_above_its_limit_is_its_first_and_its_last_half_with_a_line_between(file: Path) -> None:
    text = _text(100 * LIMIT)
    _append(file, text)

    told = _all_of(LimitedLog(file, LIMIT), complete=True)

    assert told.startswith(text[:HALF] + b"\n[nimbus: the log has reached its limit of 64.0 KiB")
    assert told.endswith(b"[nimbus: %d bytes are left out here]\n" % (99 * LIMIT) + text[-HALF:])
    assert len(told) < LIMIT + 300


def test_middle_of_a_log_above_its_limit_takes_no_room_on_the_disk(file: Path) -> None:
    log = LimitedLog(file, LIMIT)
    for _ in range(50):
        _append(file, _text(2 * LIMIT))
        before = _all_of(log, complete=True)
        log.free_middle()
        assert file.stat().st_blocks * 512 <= LIMIT + 8192
        assert _all_of(log, complete=True) == before

    assert file.stat().st_size == 100 * LIMIT


def test_what_is_told_of_a_growing_log_is_only_ever_continued(file: Path) -> None:
    log = LimitedLog(file, LIMIT)
    told = b""
    for _ in range(40):
        _append(file, _text(LIMIT // 8))
        log.free_middle()
        size = log.size(complete=False)
        told += log.read(len(told), size, complete=False)
        assert len(told) == size

    assert b"the log has reached its limit" in told
    assert _all_of(log, complete=True).startswith(told)


@pytest.mark.parametrize("stored_before", [0, 1])
def test_stored_log_is_the_same_whoever_goes_on_storing_it(
    folder: AttemptFolder, file: Path, stored_before: int
) -> None:
    logs, log = S3LogArchive(MemoryObjectStore()), LimitedLog(file, LIMIT)
    _append(file, _text(2 * LIMIT))
    while folder.log_stored() < stored_before:
        store_some(folder, logs, log, complete=False)
    _append(file, _text(2 * LIMIT))
    log.free_middle()

    store_rest(folder, logs)

    assert logs.read(ATTEMPT) == _all_of(log, complete=True)


def test_log_on_a_file_system_without_holes_is_told_within_its_limit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        return -1

    monkeypatch.setattr("nimbus.worker.attempt.log._fallocate", refuse)
    _append(file, _text(2 * LIMIT))
    log = LimitedLog(file, LIMIT)

    with pytest.raises(OSError, match="cannot free"):
        log.free_middle()

    assert len(_all_of(log, complete=True)) < LIMIT + 300
