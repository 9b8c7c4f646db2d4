"""The mark of the folder of outputs: a folder without the cluster's mark is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.worker.data.folder_checks import MARK, is_marked, why_not_ours
from tests.nimbus.worker_bench import RecordingRegistrations


def test_first_worker_marks_the_folder_and_the_others_find_it(tmp_path: Path) -> None:
    cluster, shared = RecordingRegistrations(), tmp_path / "mounted" / "data"

    assert why_not_ours(shared, cluster.data_mark) == ""
    assert why_not_ours(shared, cluster.data_mark) == ""

    assert is_marked(shared)
    assert cluster.data_mark("") == (shared / MARK).read_text()


def test_folder_whose_mount_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    cluster, elsewhere = RecordingRegistrations(), tmp_path / "elsewhere"
    why_not_ours(tmp_path / "shared", cluster.data_mark)

    said = why_not_ours(elsewhere, cluster.data_mark)

    assert f"{elsewhere} with no {MARK}" in said
    assert "mount the folder" in said
    assert not elsewhere.exists()


@pytest.mark.parametrize(("copies_mark", "is_used"), [(True, True), (False, False)])
def test_outputs_are_moved_with_their_mark(tmp_path: Path, copies_mark: bool, is_used: bool) -> None:
    cluster, old, new = RecordingRegistrations(), tmp_path / "old", tmp_path / "new"
    why_not_ours(old, cluster.data_mark)
    new.mkdir()
    if copies_mark:
        (new / MARK).write_bytes((old / MARK).read_bytes())

    assert (why_not_ours(new, cluster.data_mark) == "") is is_used


def test_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    ours, others = RecordingRegistrations(), RecordingRegistrations()
    why_not_ours(tmp_path / "ours", ours.data_mark)
    why_not_ours(tmp_path / "others", others.data_mark)

    assert f"with another {MARK}" in why_not_ours(tmp_path / "others", ours.data_mark)


def test_new_cluster_takes_over_the_outputs_of_one_that_is_gone(tmp_path: Path) -> None:
    why_not_ours(tmp_path, RecordingRegistrations().data_mark)

    assert why_not_ours(tmp_path, RecordingRegistrations().data_mark) == ""


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert "Not a directory" in why_not_ours(tmp_path / "file" / "data", RecordingRegistrations().data_mark)
