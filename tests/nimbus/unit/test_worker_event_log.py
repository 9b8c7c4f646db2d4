"""Spark's event log of an attempt: where Spark writes it, and which part is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.ports import KeptLog
from nimbus.worker.attempt import log
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.log import store_event_log
from nimbus.worker.driver.environment import event_log_settings
from tests.nimbus.worker_bench import Bench

ON = {"spark.eventLog.enabled": "true"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def folder(bench: Bench) -> AttemptFolder:
    made = bench.folder()
    made.create(bench.order("job.py"))
    return made


def _stored(bench: Bench, folder: AttemptFolder) -> bytes:
    store_event_log(folder, bench.logs)
    return bench.logs.read(folder.attempt, 0, 1 << 30, KeptLog.EVENTS)


def test_event_log_is_one_compressed_file_in_the_folder_unless_a_place_is_named() -> None:
    ours = event_log_settings({**ON, "spark.eventLog.compression.codec": "lz4"}, "/a/work")

    assert ours == {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "/a/work",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    }
    for theirs in ({}, {"spark.x": "1"}, {**ON, "spark.eventLog.dir": "hdfs://logs"}):
        assert event_log_settings(theirs, "/a/work") == theirs


def test_event_log_is_stored_in_pieces_and_safe_to_repeat(
    bench: Bench, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHUNK_BYTES", 3)
    (folder.work / "local-17.zstd").write_bytes(b"eventful")

    assert _stored(bench, folder) == b"eventful"
    assert _stored(bench, folder) == b"eventful"


def test_event_log_of_a_killed_application_is_stored_too(bench: Bench, folder: AttemptFolder) -> None:
    (folder.work / "local-17.zstd.inprogress").write_bytes(b"even")

    assert _stored(bench, folder) == b"even"


def test_no_event_log_is_stored_that_is_a_link_or_too_large(
    bench: Bench, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LARGEST_EVENT_LOG_BYTES", 4)
    (folder.work / "local-17.zstd").symlink_to("/etc/passwd")
    assert _stored(bench, folder) == b""

    (folder.work / "local-17.zstd").unlink()
    (folder.work / "local-17.zstd").write_bytes(b"event")
    assert _stored(bench, folder) == b""


def test_nothing_is_stored_of_an_attempt_without_an_event_log(bench: Bench, folder: AttemptFolder) -> None:
    assert _stored(bench, folder) == b""
