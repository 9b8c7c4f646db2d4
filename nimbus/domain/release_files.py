"""Files of releases, and how they differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.ids import ReleaseDigest


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file, as the manifest says."""

    path: str
    size_bytes: int
    sha256: str
    role: str
    """`code`, `configuration` or `dependency`."""
    executable: bool


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that is not the same in two releases. None: it is not there."""

    path: str
    before: ReleaseFile | None
    after: ReleaseFile | None


@dataclass(frozen=True, slots=True)
class Publication:
    """That a release was published, by the clock of who did it."""

    digest: ReleaseDigest
    at: datetime


@dataclass(frozen=True, slots=True)
class Holders:
    """Schedulers and what they say of a release; ids, sorted."""

    holding: tuple[str, ...]
    """It is on their disks, verified."""
    lacking: tuple[str, ...]
    silent: tuple[str, ...]
    """They have not said anything for a while."""


def changed_files(before: Iterable[ReleaseFile], after: Iterable[ReleaseFile]) -> list[FileChange]:
    """What differs, by path."""
    old, new = ({file.path: file for file in files} for files in (before, after))
    return [
        FileChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
