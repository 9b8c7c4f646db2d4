"""What several commands need of a local store, and the bar that shows how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from blobsync.cli.options import Setting
from blobsync.errors import ReleaseAbsentError
from blobsync.local.releases import KeptRelease
from blobsync.local.store import LocalStore
from blobsync.release.manifest import ReleaseRef


def kept_release(local: LocalStore, ref: ReleaseRef) -> KeptRelease:
    """What a store keeps of a release.

    Raises:
        ReleaseAbsentError: Nothing.
    """
    kept = local.kept(ref)
    if kept is None:
        raise ReleaseAbsentError(f"{ref} is not kept in {local.root}; sync it first")
    return kept


@contextmanager
def bar_of(setting: Setting, what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is told how far it is, in bytes; it does nothing unless somebody watches."""
    if not setting.shows_progress:
        yield lambda _done, _total: None
        return
    from blobsync.cli.bars import bars

    with bars() as bar:
        yield lambda done, total: bar.show(what, done, total)
