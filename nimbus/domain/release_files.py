"""Files of releases, and their differences. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.ids import ReleaseDigest


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file, as listed in the manifest."""

    path: str
    size_bytes: int
    sha256: str
    role: str
    """`code`, `configuration` or `dependency`."""
    executable: bool


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs between two releases. None: that release does not have it."""

    path: str
    before: ReleaseFile | None
    after: ReleaseFile | None


@dataclass(frozen=True, slots=True)
class Publication:
    """The publication of a release, with the time of the publisher's clock."""

    digest: ReleaseDigest
    at: datetime


@dataclass(frozen=True, slots=True)
class Holders:
    """Ids of schedulers by what they report about a release; sorted."""

    holding: tuple[str, ...]
    """Schedulers that have it on disk, verified."""
    lacking: tuple[str, ...]
    silent: tuple[str, ...]
    """Schedulers that have not reported for a while."""


def changed_files(before: Iterable[ReleaseFile], after: Iterable[ReleaseFile]) -> list[FileChange]:
    """The differences, in the order of paths."""
    old, new = ({file.path: file for file in files} for files in (before, after))
    return [
        FileChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
