"""When a worker has too little memory or disk for more attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.worker.host import free_room
from nimbus.worker.host.free_room import FreeRoom, available_memory, lacking

GIB = 1 << 30


@pytest.mark.parametrize(
    ("least", "said"),
    [
        (FreeRoom(), ""),
        (FreeRoom(memory_bytes=GIB), ""),
        (FreeRoom(memory_bytes=3 * GIB), "2048 MiB of memory free, and worker.min_free.memory is 3072 MiB"),
        (FreeRoom(disk_bytes=1), ""),
        (FreeRoom(disk_bytes=1 << 62), f"of disk free, and worker.min_free.disk is {1 << 42} MiB"),
    ],
)
def test_worker_says_what_it_has_too_little_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: FreeRoom, said: str
) -> None:
    monkeypatch.setattr(free_room, "available_memory", lambda: 2 * GIB)

    assert lacking(least, tmp_path).endswith(said)
    assert bool(lacking(least, tmp_path)) == bool(said)


def test_worker_with_a_full_or_missing_disk_says_so_without_a_limit_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        lacking(FreeRoom(), tmp_path / "no")
        == f"worker.work_dir {tmp_path / 'no'}: No such file or directory"
    )
    monkeypatch.setattr(free_room, "MIN_FREE_BYTES", 1 << 62)

    assert lacking(FreeRoom(), tmp_path).endswith(f"an attempt needs {1 << 42} MiB")


def test_idle_file_cache_of_a_control_group_counts_as_free(tmp_path: Path) -> None:
    group = tmp_path / "box"
    group.mkdir()
    (tmp_path / "own").write_text("0::/box\n")
    for name, text in (("max", "1000"), ("current", "900"), ("stat", "anon 500\ninactive_file 300\n")):
        (group / f"memory.{name}").write_text(text)

    assert available_memory(tmp_path, tmp_path / "own") == 400
