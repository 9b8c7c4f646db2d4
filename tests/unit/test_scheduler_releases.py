"""Definitions of the releases on a scheduler's disk: read once, never fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from blobsync import BlobSyncError, ReleaseRef, Syncer
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import DEFINITION_FILE
from nimbus.scheduler import releases
from nimbus.scheduler.releases import LocalReleases

TEXT = "schema: 1\nname: {name}\ntasks:\n  a: {{type: python, script: a.py, args: ['{{{{ ds }}}}']}}\n"


class Disk:
    """A syncer whose releases are folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: list[tuple[str, timedelta]] = []

    def put(self, name: str) -> ReleaseOf:
        release = ReleaseOf(PipelineName(name), ReleaseDigest("a" * 64))
        (self.root / name).mkdir()
        (self.root / name / DEFINITION_FILE).write_text(TEXT.format(name=name))
        return release

    @contextmanager
    def pinned(self, ref: ReleaseRef, timeout: timedelta) -> Iterator[Path]:
        self.read.append((ref.name, timeout))
        if not (self.root / ref.name).exists():
            raise BlobSyncError("it is not here")
        yield self.root / ref.name


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_definition_is_read_from_the_disk_once(disk: Disk) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")

    first, second = local.definition(release), local.definition(release)

    assert first is second
    assert [task.name for task in first.tasks] == ["a"]
    assert disk.read == [("p", timedelta(0))], "nothing is waited for"


def test_a_definition_that_was_checked_when_it_was_published_is_not_read_again(disk: Disk) -> None:
    local, release = LocalReleases(cast("Syncer", disk)), disk.put("p")

    assert local.definition(release) is local.definition(release)
    assert local.prepare(release) == local.definition(release)
    assert len(disk.read) == 2, "a look and a check"


def test_a_release_that_is_not_here_is_said_and_found_when_it_has_come(disk: Disk) -> None:
    local = LocalReleases(cast("Syncer", disk))

    with pytest.raises(RefusedError, match="it is not here"):
        local.definition(ReleaseOf(PipelineName("p"), ReleaseDigest("a" * 64)))
    assert local.definition(disk.put("p")).name == "p"


def test_only_the_definitions_that_were_asked_for_last_are_kept(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "MOST_TASKS_KEPT", 2)
    local = LocalReleases(cast("Syncer", disk))
    p, q, r = (disk.put(name) for name in "pqr")

    for release in (p, q, p, r, p):
        local.definition(release)
    assert [name for name, _ in disk.read] == ["p", "q", "r"]
    local.definition(q)
    assert [name for name, _ in disk.read] == ["p", "q", "r", "q"]
