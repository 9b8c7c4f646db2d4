"""The file in which a single node stores its epoch."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from leader import ElectionConfigError, ElectionStateError, RecordError
from leader.local.single import EpochFile


def test_what_was_raised_is_there_after_a_restart(tmp_path: Path) -> None:
    first = EpochFile(tmp_path / "epoch")
    assert first.lock() == 0
    first.raise_to(1)
    first.raise_to(2)
    first.unlock()
    first.unlock()

    again = EpochFile(tmp_path / "epoch")

    assert again.lock() == 2
    again.unlock()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch", "epoch.lock"]


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    first, second = EpochFile(tmp_path / "epoch"), EpochFile(tmp_path / "epoch")
    first.lock()
    try:
        with pytest.raises(ElectionStateError, match=r"the lock on .*epoch\.lock"):
            second.lock()
    finally:
        first.unlock()
    assert second.lock() == 0
    second.unlock()


@pytest.mark.parametrize("content", [b"", b"seven", b"-1\n", b"1 2", b"\xff\xfe"])
def test_a_file_that_holds_something_else_is_refused_and_the_lock_let_go(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "epoch").write_bytes(content)

    for _ in range(2):
        with pytest.raises(RecordError, match="instead of an epoch number"):
            EpochFile(tmp_path / "epoch").lock()


def test_a_write_that_fails_leaves_the_old_epoch_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EpochFile(tmp_path / "epoch")
    file.lock()
    file.raise_to(4)

    def full(_fd: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            file.raise_to(5)
    file.unlock()

    assert EpochFile(tmp_path / "epoch")._read() == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch", "epoch.lock"]


def test_a_file_system_without_locks_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", no_locks)
        with pytest.raises(ElectionConfigError, match=r"No locks available.*local disk"):
            EpochFile(tmp_path / "epoch").lock()

    again = EpochFile(tmp_path / "epoch")
    again.lock()
    again.unlock()


@pytest.mark.parametrize("name", ["epoch", "epoch.lock"])
def test_a_file_that_cannot_be_opened_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    for _ in range(2):
        with pytest.raises(ElectionConfigError, match=f"{tmp_path}/{name} .*permissions"):
            EpochFile(tmp_path / "epoch").lock()


def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    first, second = EpochFile(tmp_path / "epoch"), EpochFile(tmp_path / "epoch")
    first.lock()
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        theirs.send(b"x")
        theirs.recv(1)  # returns when the parent has closed its end
        os._exit(0)
    try:
        ours.recv(1)
        with pytest.raises(ElectionStateError, match="another process uses"):
            second.lock()
        first.unlock()

        assert second.lock() == 0, "the child lives, and does not hold the lock"
        second.unlock()
    finally:
        ours.close()
        theirs.close()
        os.waitpid(child, 0)
