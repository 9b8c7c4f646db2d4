"""Removes files that no release needs, in two steps: one call marks, a call after the grace removes them.

Missing information removes nothing. An empty set of wanted releases is refused unless `allow_empty` is set.
Packs and blobs stay while the content of any wanted release is not known. More than a share of the store is
never removed at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from blobsync.errors import GcRefusedError
from blobsync.local.disk import FOLDER, locked, remove_tree, replace_file
from blobsync.local.releases import RELEASE_FILES
from blobsync.local.store import LocalStore

GRACE = timedelta(hours=1)
MAX_SHARE = 0.5
_COUNTED = ("packs/", "blobs/", "trees/")
"""The folders to which the limit `max_share` applies."""


@dataclass(frozen=True, slots=True)
class GcReport:
    """Result of one call; of a dry run, what it would do. Paths are relative to the store's root."""

    removed: tuple[str, ...]
    marked: tuple[str, ...]
    """Unreachable; removed at a later call, after the grace."""
    freed_bytes: int
    marked_bytes: int
    objects_kept_because: str
    """Why no pack or blob was marked or removed; empty: they were examined."""


def gc(
    store: LocalStore,
    keep: Set[str],
    *,
    grace: timedelta = GRACE,
    allow_empty: bool = False,
    max_share: float = MAX_SHARE,
    dry_run: bool = False,
    now_s: Callable[[], float] = time.time,
) -> GcReport:
    """Remove what has been unreachable since an earlier call, at least for `grace`.

    Args:
        store: The local store.
        keep: Digests of the manifests of all wanted releases. Releases that live sessions hold are kept, too.
        grace: Shortest time between mark and removal. Protects objects that are being fetched.
        allow_empty: Accept an empty `keep`.
        max_share: Share of the bytes in packs, blobs and trees; removing more at once is refused.
        dry_run: Only report; nothing is marked or removed.
        now_s: Seconds of a clock that survives restarts.

    Raises:
        GcRefusedError: `keep` is empty, or the list of a live session cannot be read, or too much would be
            removed.
        LocalStoreError: the disk failed.
    """
    if not keep and not allow_empty:
        raise GcRefusedError(
            f"collection in {store.root} was told that no release is wanted, which is more often wrong than "
            f"true; nothing was removed. If it is true, say allow_empty"
        )
    trash = store.context.session.new_path()
    with store.context.disk.errors(f"collecting in {store.root}"):
        listing = _listed(store.root)  # outside of the lock: it may take long
        with locked(store.context.lock_file):
            plan = _plan(store, keep, grace, now_s(), listing)
            if keep:
                _refuse_too_much(plan, max_share)
            if not dry_run:
                _carry_out(store, plan, trash)
        remove_tree(trash)  # outside of the lock, too
    return GcReport(
        tuple(item.place for item in plan.due),
        tuple(item.place for item in plan.waiting),
        sum(item.size_bytes for item in plan.due),
        sum(item.size_bytes for item in plan.waiting),
        plan.why,
    )


@dataclass(frozen=True, slots=True)
class _DeletionPlan:
    due: list[_Collectable]
    waiting: list[_Collectable]
    marks: dict[str, float]
    """When each of `waiting` was marked."""
    total_bytes: int
    why: str


def _plan(
    store: LocalStore, keep: Set[str], grace: timedelta, now: float, listing: _Listing
) -> _DeletionPlan:
    """Decide by what is needed now. The caller must hold the store's lock.

    Files of the listing that were written again since then stay: their state differs.
    """
    holds = store.context.session.all_holds()
    if holds is None:
        raise GcRefusedError(f"what another user of {store.root} needs cannot be read; nothing was removed")
    unreachable, why = _unreachable(store, frozenset(keep) | holds, listing)
    former = _marks(store.root / "gc.json")
    # A mark from the future means that the clock was set back: the grace starts again.
    marks = {item.state: min(former.get(item.state, now), now) for item in unreachable}
    due, waiting = list[_Collectable](), list[_Collectable]()
    for item in unreachable:
        ripe = item.state in former and now - marks[item.state] >= grace.total_seconds()
        (due if ripe else waiting).append(item)
    due = [item for item in due if _is_unchanged(store.root, item)]
    marked = {item.state: marks[item.state] for item in waiting}
    return _DeletionPlan(due, waiting, marked, listing.total_bytes, why)


def _refuse_too_much(plan: _DeletionPlan, max_share: float) -> None:
    due = sum(item.size_bytes for item in plan.due if item.place.startswith(_COUNTED))
    if due > max_share * plan.total_bytes:
        raise GcRefusedError(
            f"{due} of {plan.total_bytes} bytes would go, above the share of {max_share:g} that may go at "
            f"once; nothing was removed. If that is right, raise max_share"
        )


def _carry_out(store: LocalStore, plan: _DeletionPlan, trash: Path) -> None:
    for number, item in enumerate(plan.due):
        store.context.step("gc-move")
        trash.mkdir(exist_ok=True)
        path = store.root / item.place
        if path.is_dir() and not path.is_symlink():
            path.chmod(FOLDER)
        with _unused(store.root, path) as free:
            if free:
                with contextlib.suppress(FileNotFoundError):  # another process has moved or deleted it
                    path.rename(trash / str(number))
    store.context.step("gc-mark")
    replace_file(store.root / "gc.json", json.dumps(plan.marks).encode(), store.context.session.new_path())


def _marks(path: Path) -> dict[str, float]:
    """The time of each mark. Empty if the file is lost or damaged: then the grace starts again."""
    try:
        document = json.loads(path.read_bytes())
        return {str(place): float(since) for place, since in document.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


@dataclass(frozen=True, slots=True)
class _Collectable:
    """A file or folder that may be removed. `place` is relative to the store's root.

    `size_bytes` is what its removal frees. `state` has its place and time: after a write it differs, so an
    old mark does not apply.
    """

    place: str
    size_bytes: int
    state: str

    @property
    def name(self) -> str:
        return self.place.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files of a store, each kind in the order of its names.

    `records` are manifests, layouts and records of releases, `objects` packs and blobs; see `_stale`.
    """

    records: list[_Collectable]
    trees: list[_Collectable]
    objects: list[_Collectable]
    stale: list[_Collectable]

    @property
    def total_bytes(self) -> int:
        return sum(item.size_bytes for item in [*self.trees, *self.objects])


def _listed(root: Path) -> _Listing:
    tree_bytes = _tree_sizes(root)
    trees = _all(root, sorted((root / "trees").iterdir()))
    return _Listing(
        _all(
            root, (path for kind in RELEASE_FILES for path in sorted((root / "releases").glob(f"*/*{kind}")))
        ),
        [replace(item, size_bytes=tree_bytes.get(item.place, item.size_bytes)) for item in trees],
        _all(root, _objects(root)),
        _all(root, _stale(root)),
    )


def _unreachable(store: LocalStore, wanted: Set[str], listing: _Listing) -> tuple[list[_Collectable], str]:
    """Compare the files with those that the wanted releases need. The caller must hold the store's lock.

    Returns the unreachable files in the order of removal (releases, trees, objects), and why packs and blobs
    were not examined; empty: they were.
    """
    needed, unknown = set[str](), set(wanted)
    for ref in store.releases():
        if ref.digest in wanted:
            kept = store.kept(ref)
            if kept is not None:
                unknown.discard(ref.digest)
                needed |= {item.name for item in kept.objects}
    unreachable = [item for item in listing.records if item.name.rpartition(".")[0] not in wanted]
    unreachable += [item for item in listing.trees if item.name.removesuffix(".files") not in wanted]
    if not unknown:
        unreachable += [item for item in listing.objects if item.name not in needed]
    unreachable += listing.stale
    why = f"what wanted release {min(unknown)} consists of is not known here yet" if unknown else ""
    return unreachable, why


def _objects(root: Path) -> Iterator[Path]:
    for kind in ("packs", "blobs"):
        yield from sorted((root / kind).glob("??/*"))


def _stale(root: Path) -> Iterator[Path]:
    """Partial files that are not being received now, and damaged files."""
    for path in sorted((root / "partial").iterdir()):
        with _unused(root, path) as free:
            if free:
                yield path
    yield from sorted((root / "quarantine").iterdir())


@contextlib.contextmanager
def _unused(root: Path, path: Path) -> Iterator[bool]:
    """Yield True if no process receives this file, and lock it so that none can. True for other files."""
    if not _is_partial(root, path):
        yield True
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # the download has just been finished
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


def _all(root: Path, paths: Iterable[Path]) -> list[_Collectable]:
    return [item for item in (_found(root, path) for path in paths) if item is not None]


def _found(root: Path, path: Path) -> _Collectable | None:
    try:
        stat = path.lstat()
    except FileNotFoundError:  # a download that has just been finished
        return None
    place, size_bytes = path.relative_to(root).as_posix(), stat.st_size
    if _is_partial(root, path):  # it may have reserved space beyond its length
        size_bytes = max(size_bytes, stat.st_blocks * 512)
    return _Collectable(place, size_bytes, f"{place} {stat.st_mtime_ns}")


def _is_unchanged(root: Path, item: _Collectable) -> bool:
    identity = _found(root, root / item.place)
    return identity is not None and identity.state == item.state


def _is_partial(root: Path, path: Path) -> bool:
    """True if it is an unfinished download. A release may have the name `partial`, too."""
    return path.parent == root / "partial"


def _tree_sizes(root: Path) -> dict[str, int]:
    """Bytes that the removal of each tree frees, by its place: without files that have other hard links."""
    return {
        path.relative_to(root).as_posix(): _tree_size(path)
        for path in (root / "trees").iterdir()
        if path.is_dir() and not path.is_symlink()
    }


def _tree_size(folder: Path) -> int:
    total = 0
    for below, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process replaces the tree
                stat = Path(below, name).lstat()
                total += stat.st_size if stat.st_nlink == 1 else 0
    return total
