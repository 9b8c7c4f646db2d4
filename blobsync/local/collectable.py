"""What lies in a local store, and which of it no wanted release reaches. Reads, never writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from blobsync.local.releases import RELEASE_FILES

if TYPE_CHECKING:
    from blobsync.local.store import LocalStore


COUNTED = ("packs/", "blobs/", "trees/")
"""Where that lies of which no more than a share is removed at once."""


@dataclass(frozen=True, slots=True)
class Collectable:
    """A file or folder that may go.

    Attributes:
        place: Relative to the store's root.
        size_bytes: That go with it.
        state: Its place and time: what was written to since has another, and is not meant by an old mark.
    """

    place: str
    size_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class Collectables:
    """What was found."""

    unreachable: list[Collectable]
    """In the order in which it is to go: releases first, then trees, then what they need."""
    total_bytes: int
    """Of all packs, blobs and trees."""
    why: str
    """Why no pack or blob is among them; empty: they may be."""


def collectables(store: LocalStore, wanted: Set[str]) -> Collectables:
    """Compare what is there with what the wanted releases need. The caller has the store's lock.

    Args:
        store: Where.
        wanted: Digests of manifests.
    """
    root, unreachable, needed, unknown = store.root, list[Collectable](), set[str](), set(wanted)
    for ref in store.releases():
        if ref.digest in wanted:
            kept = store.kept(ref)
            if kept is not None:
                unknown.discard(ref.digest)
                needed |= {item.name for item in kept.objects}
    records = [path for kind in RELEASE_FILES for path in sorted((root / "releases").glob(f"*/*{kind}"))]
    unreachable += _all(root, (path for path in records if path.stem not in wanted))
    trees = _all(root, sorted((root / "trees").iterdir()))
    unreachable += [item for item in trees if Path(item.place).name.removesuffix(".files") not in wanted]
    objects = _all(root, _objects(root))
    if not unknown:
        unreachable += [item for item in objects if Path(item.place).name not in needed]
    unreachable += _all(root, _stale(root))
    return Collectables(
        unreachable,
        sum(item.size_bytes for item in [*trees, *objects]),
        f"what wanted release {min(unknown)} consists of is not known here yet" if unknown else "",
    )


def _objects(root: Path) -> Iterator[Path]:
    for kind in ("packs", "blobs"):
        yield from sorted((root / kind).glob("??/*"))


def _stale(root: Path) -> Iterator[Path]:
    """Downloads that nobody goes on with now, and what was found damaged."""
    for path in sorted((root / "partial").iterdir()):
        with unused(path) as free:
            if free:
                yield path
    yield from sorted((root / "quarantine").iterdir())


@contextlib.contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Whether nobody receives this file; nor does anybody begin to meanwhile. True for other files."""
    if path.parent.name != "partial":
        yield True
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # it was finished just now
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def _all(root: Path, paths: Iterable[Path]) -> list[Collectable]:
    return [item for item in (_found(root, path) for path in paths) if item is not None]


def _found(root: Path, path: Path) -> Collectable | None:
    try:
        found = path.lstat()
    except FileNotFoundError:  # a download that was finished just now
        return None
    is_tree = stat.S_ISDIR(found.st_mode)
    place = path.relative_to(root).as_posix()
    return Collectable(place, _tree_size(path) if is_tree else found.st_size, f"{place} {found.st_mtime_ns}")


def _tree_size(folder: Path) -> int:
    """Bytes that go with it: not those of files that have other names too."""
    total = 0
    for below, _, names in os.walk(folder):
        for name in names:
            found = Path(below, name).lstat()
            total += found.st_size if found.st_nlink == 1 else 0
    return total
