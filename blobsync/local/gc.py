"""Collecting what no release needs any more, in two steps: mark, and at a later call after a grace, remove.

Never by absence: an empty set of wanted releases removes nothing unless that is asked for in so many words,
and blobs stay as long as it is not known what every wanted release consists of.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from blobsync.errors import GcRefusedError
from blobsync.local.disk import FOLDER, disk_errors, locked, remove_tree
from blobsync.local.store import LocalStore
from blobsync.names import is_digest

GRACE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class GcReport:
    """What one call did. Paths are relative to the store's root."""

    removed: tuple[str, ...]
    marked: tuple[str, ...]
    freed_bytes: int
    blobs_kept_because: str
    """Why no blob was touched; empty: they were."""


def gc(
    store: LocalStore,
    keep: Set[str],
    *,
    grace: timedelta = GRACE,
    allow_empty: bool = False,
    now_s: Callable[[], float] = time.time,
) -> GcReport:
    """Remove what was unreachable at an earlier call, is so still, and has been for `grace`.

    Args:
        store: Where.
        keep: Digests of the manifests of all wanted releases. What any live session holds is kept as well.
        grace: At least so long between mark and removal. Protects what is being brought in.
        allow_empty: Nothing is wanted, and that is no mistake.
        now_s: Seconds of a clock that survives restarts.

    Raises:
        GcRefusedError: nothing is wanted, or the needs of a live session cannot be read.
        LocalStoreError: the disk failed.
    """
    if not keep and not allow_empty:
        raise GcRefusedError(
            f"collection in {store.root} was told that no release is wanted, which is more often wrong than "
            f"true; nothing was removed. If it is true, say allow_empty"
        )
    trash = store.session.new_path()
    with disk_errors(f"collecting in {store.root}"):
        with locked(store.lock_file):
            unreachable, why = _unreachable(store, keep)
            now = now_s()
            marks_file = store.root / "gc.json"
            former = _marks(marks_file)
            # A mark from the future is a clock that was set back: the grace starts anew.
            marks = {place: min(former.get(place, now), now) for place in unreachable}
            due = sorted(
                place for place in marks if place in former and now - marks[place] >= grace.total_seconds()
            )
            freed = sum(_move(store.root / place, trash, number) for number, place in enumerate(due))
            _write(store, marks_file, {place: since for place, since in marks.items() if place not in due})
        remove_tree(trash)  # outside of the lock: it may take long
    return GcReport(tuple(due), tuple(sorted(set(marks) - set(due))), freed, why)


def _unreachable(store: LocalStore, keep: Set[str]) -> tuple[list[str], str]:
    holds = store.session.all_holds()
    if holds is None:
        raise GcRefusedError(f"what another user of {store.root} needs cannot be read; nothing was removed")
    wanted = frozenset(keep) | holds
    here = store.manifests()
    manifests = {ref.digest: store.manifest(ref) for ref in here if ref.digest in wanted}
    places = [f"trees/{path.name}" for path in (store.root / "trees").iterdir() if path.name not in wanted]
    places += [f"releases/{ref.name}/{ref.digest}.json" for ref in here if ref.digest not in wanted]
    unknown = sorted(digest for digest in wanted if manifests.get(digest) is None)
    if unknown:
        return places, f"what wanted release {unknown[0]} consists of is not known here yet"
    reachable = {blob for found in manifests.values() if found is not None for blob in found.blobs}
    places += [f"blobs/{name[:2]}/{name}" for name in _blobs(store.root) if name not in reachable]
    return places, ""


def _blobs(root: Path) -> Iterator[str]:
    return (path.name for path in (root / "blobs").glob("??/*") if is_digest(path.name))


def _marks(path: Path) -> dict[str, float]:
    """What was marked since when; nothing, if that is lost: then the grace starts anew."""
    try:
        document = json.loads(path.read_bytes())
        return {str(place): float(since) for place, since in document.items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def _write(store: LocalStore, path: Path, marks: dict[str, float]) -> None:
    part = store.session.new_path()
    part.write_text(json.dumps(marks))
    part.replace(path)


def _move(path: Path, trash: Path, number: int) -> int:
    trash.mkdir(exist_ok=True)
    # A tree's files are links: what they free is counted with their blobs.
    size = 0 if path.is_dir() else path.lstat().st_size
    if path.is_dir():
        path.chmod(FOLDER)
    path.rename(trash / str(number))
    return size
