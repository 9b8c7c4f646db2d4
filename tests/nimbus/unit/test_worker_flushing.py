"""Data that are flushed before an attempt counts as a success, shown by the calls of fsync."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.held_attempt import committed
from nimbus.worker.attempt.verdict import Ending
from nimbus.worker.data.places import FolderPlace
from nimbus.worker.host.files import flush_above, flush_tree

SUCCESS = Ending(Outcome.SUCCEEDED, "", 0)


class Disk:
    """Replaces `os.fsync`: records flushed files, and can fail for one file."""

    def __init__(self, fails: str = "", error: int = errno.EIO) -> None:
        self.flushed: set[Path] = set()
        self._fails, self._error = fails, error

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.name == self._fails:
            raise OSError(self._error, os.strerror(self._error))
        self.flushed.add(path)
        os.fsync(fd)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    place = tmp_path / "data" / "p" / "r" / "t" / "1"
    (place / "deep" / "empty").mkdir(parents=True)
    (place / "part").write_text("rows")
    (place / "deep" / "part").write_text("rows")
    return place


def with_all_above(output: Path, tmp_path: Path, disk: Disk) -> Ending:
    place = FolderPlace(tmp_path / "data", fsync=disk.fsync)
    folder = AttemptFolder(tmp_path / "r.t.1")
    folder.path.mkdir()
    folder.context_file.write_text('{"data": {"output": "p/r/t/1"}}')
    verdict, reference = committed(place, folder, output, lambda: None)
    assert reference == ("p/r/t/1" if verdict.outcome is Outcome.SUCCEEDED else None)
    return verdict


def test_flush_reaches_each_file_and_folder_and_all_folders_above(tmp_path: Path, output: Path) -> None:
    disk, data = Disk(), tmp_path / "data"

    flush_above(output, data, fsync=disk.fsync)
    flush_tree(output, fsync=disk.fsync)

    above = {data, data / "p", data / "p" / "r", data / "p" / "r" / "t"}
    assert disk.flushed == above | {output, *output.rglob("*")}


def test_folders_above_a_run_are_flushed_once(tmp_path: Path, output: Path) -> None:
    disk, data = Disk(), tmp_path / "data"
    place = FolderPlace(data, fsync=disk.fsync)
    place.commit(output, "p/r/t/1")
    disk.flushed.clear()
    other = output.parents[1] / "u" / "1"
    other.mkdir(parents=True)

    place.commit(other, "p/r/u/1")

    assert disk.flushed == {data / "p" / "r", other.parent, other}


def test_flush_of_an_output_reaches_the_folder_that_has_its_name(tmp_path: Path, output: Path) -> None:
    disk = Disk()
    flush_above(output, tmp_path / "data")
    new = output.with_name("new")
    new.mkdir()
    shutil.rmtree(output)
    new.rename(output)

    flush_tree(output, fsync=disk.fsync)

    assert disk.flushed == {output, output.parent}


def test_flush_follows_no_symbolic_link_and_opens_no_pipe(tmp_path: Path, output: Path) -> None:
    disk, outside = Disk(), tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("of somebody else")
    (output / "folder-link").symlink_to(outside)
    (output / "file-link").symlink_to(outside / "file")
    (output / "dangling").symlink_to("nowhere")
    os.mkfifo(output / "pipe")

    flush_tree(output, fsync=disk.fsync)

    assert not {path for path in disk.flushed if path.is_relative_to(outside) or path.name == "pipe"}
    assert output / "deep" / "part" in disk.flushed


@pytest.mark.parametrize("fails", ["part", "empty", "t"])
def test_success_is_a_failure_when_a_file_or_folder_cannot_be_flushed(
    tmp_path: Path, output: Path, fails: str
) -> None:
    verdict = with_all_above(output, tmp_path, Disk(fails))

    assert (verdict.outcome, verdict.exit_code) == (Outcome.FAILED, 0)
    assert "could not be flushed" in verdict.reason
    assert "Input/output error" in verdict.reason


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
def test_success_stays_one_where_the_file_system_flushes_no_folders(
    tmp_path: Path, output: Path, error: int
) -> None:
    assert with_all_above(output, tmp_path, Disk("deep", error)) == SUCCESS
