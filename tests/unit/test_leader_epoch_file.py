"""The file in which a single node stores its epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from leader import ElectionStateError, RecordError
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
