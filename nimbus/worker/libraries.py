"""Finds the wheels and jars of a release that a task uses. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from nimbus.worker.wheels import BadWheelError, package_of, same_package


def find_wheels(release_root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """The wheels that the patterns name, as paths in the release. Of each package, only the first.

    Raises:
        BadWheelError: one pattern names two of one package.
    """
    chosen: dict[str, str] = {}
    for found in _found(release_root, patterns):
        if same := same_package(map(PurePosixPath, found)):
            raise BadWheelError(same[1], f"is of the same package as {same[0].name}")
        for path in found:
            chosen.setdefault(package_of(PurePosixPath(path)), path)
    return tuple(chosen.values())


def find_jars(release_root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """The jars that the patterns name, as paths in the release: by pattern, then by name."""
    return tuple(dict.fromkeys(path for found in _found(release_root, patterns) for path in found))


def _found(release_root: Path, patterns: Iterable[str]) -> Iterator[list[str]]:
    """The files of each pattern, as paths in the release."""
    from blobsync import matching

    files: list[str] | None = None
    for pattern in patterns:
        if files is None:
            paths = sorted(release_root.rglob("*"))
            files = [path.relative_to(release_root).as_posix() for path in paths if path.is_file()]
        yield matching(pattern, files)
