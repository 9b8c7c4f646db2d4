"""Collecting what no release needs any more, in two steps: mark, and at a later call after a grace, remove.

Never by absence: an empty set of wanted releases removes nothing unless that is asked for in so many words,
packs and blobs stay as long as it is not known what every wanted release consists of, and more than a share
of the store is not removed at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from blobsync.errors import GcRefusedError
from blobsync.local.collectable import COUNTED, Collectable, collectables, unused
from blobsync.local.disk import FOLDER, locked, remove_tree
from blobsync.local.store import LocalStore

GRACE = timedelta(hours=1)
MAX_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class GcReport:
    """What one call did, or would do. Paths are relative to the store's root."""

    removed: tuple[str, ...]
    marked: tuple[str, ...]
    """Unreachable; removed at a later call, after the grace."""
    freed_bytes: int
    marked_bytes: int
    objects_kept_because: str
    """Why no pack or blob was touched; empty: they were."""


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
    """Remove what was unreachable at an earlier call, is so still, and has been for `grace`.

    Args:
        store: Where.
        keep: Digests of the manifests of all wanted releases. What any live session holds is kept as well.
        grace: At least so long between mark and removal. Protects what is being brought in.
        allow_empty: Nothing is wanted, and that is no mistake.
        max_share: Of the bytes in packs, blobs and trees; to remove more at once is refused.
        dry_run: Say what would be done; nothing is marked or removed.
        now_s: Seconds of a clock that survives restarts.

    Raises:
        GcRefusedError: nothing is wanted, or the needs of a live session cannot be read, or too much would
            go.
        LocalStoreError: the disk failed.
    """
    if not keep and not allow_empty:
        raise GcRefusedError(
            f"collection in {store.root} was told that no release is wanted, which is more often wrong than "
            f"true; nothing was removed. If it is true, say allow_empty"
        )
    trash = store.session.new_path()
    with store.foundation.disk.errors(f"collecting in {store.root}"):
        with locked(store.lock_file):
            plan = _plan(store, keep, grace, now_s())
            if keep:
                _refuse_too_much(plan, max_share)
            if not dry_run:
                _carry_out(store, plan, trash)
        remove_tree(trash)  # outside of the lock: it may take long
    return GcReport(
        tuple(item.place for item in plan.due),
        tuple(item.place for item in plan.waiting),
        sum(item.size_bytes for item in plan.due),
        sum(item.size_bytes for item in plan.waiting),
        plan.why,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    due: list[Collectable]
    waiting: list[Collectable]
    marks: dict[str, float]
    """Of what waits: since when."""
    total_bytes: int
    why: str


def _plan(store: LocalStore, keep: Set[str], grace: timedelta, now: float) -> _Plan:
    holds = store.session.all_holds()
    if holds is None:
        raise GcRefusedError(f"what another user of {store.root} needs cannot be read; nothing was removed")
    found = collectables(store, frozenset(keep) | holds)
    former = _marks(store.root / "gc.json")
    # A mark from the future is a clock that was set back: the grace starts anew.
    marks = {item.state: min(former.get(item.state, now), now) for item in found.unreachable}
    due, waiting = list[Collectable](), list[Collectable]()
    for item in found.unreachable:
        ripe = item.state in former and now - marks[item.state] >= grace.total_seconds()
        (due if ripe else waiting).append(item)
    return _Plan(
        due, waiting, {item.state: marks[item.state] for item in waiting}, found.total_bytes, found.why
    )


def _refuse_too_much(plan: _Plan, max_share: float) -> None:
    due = sum(item.size_bytes for item in plan.due if item.place.startswith(COUNTED))
    if due > max_share * plan.total_bytes:
        raise GcRefusedError(
            f"{due} of {plan.total_bytes} bytes would go, above the share of {max_share:g} that may go at "
            f"once; nothing was removed. If that is right, raise max_share"
        )


def _carry_out(store: LocalStore, plan: _Plan, trash: Path) -> None:
    for number, item in enumerate(plan.due):
        store.foundation.step("gc-move")
        trash.mkdir(exist_ok=True)
        path = store.root / item.place
        if path.is_dir() and not path.is_symlink():
            path.chmod(FOLDER)
        with unused(path) as free:
            if free:
                path.rename(trash / str(number))
    store.foundation.step("gc-mark")
    part = store.session.new_path()
    part.write_text(json.dumps(plan.marks))
    part.replace(store.root / "gc.json")


def _marks(path: Path) -> dict[str, float]:
    """What was marked since when; nothing, if that is lost: then the grace starts anew."""
    try:
        document = json.loads(path.read_bytes())
        return {str(place): float(since) for place, since in document.items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}
