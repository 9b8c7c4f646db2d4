"""What of a release is in packs that the store has already: those of earlier releases.

Nothing that is read here is trusted: a layout or a table that lies makes a release that readers find corrupt,
never wrong bytes on their disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from blobsync.errors import BlobNotFoundError, CorruptBlobError, InvalidLayoutError, InvalidPackError
from blobsync.log import Log
from blobsync.publishing.plan import KnownPack
from blobsync.publishing.remote import Remote
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import ReleaseRef
from blobsync.release.pack import PackTable
from blobsync.storage import keys
from blobsync.storage.reading import read_table
from blobsync.storage.releases import fetch_layout, published

MAX_LAYOUTS = 8
"""So many of the newest releases of the same name are looked at."""
MAX_TABLES = 512
"""So many packs are looked into, at most."""

_log = Log(__name__)


def known_packs(
    remote: Remote, pool: Executor, own: ReleaseRef, base: Sequence[ReleaseRef], wanted: Mapping[str, int]
) -> list[KnownPack]:
    """Find packs with blobs that are wanted.

    Args:
        remote: The store.
        pool: For several requests at once.
        own: The release itself, which may have been published before, in part or whole.
        base: Releases of other names that share files with it.
        wanted: Size of each small blob, by digest.

    Raises:
        BlobSyncError: as of `ObjectStore`.
    """
    names = {sha256: sha256 for sha256 in wanted}  # one string for each, not one for each table
    left, seen = set(wanted), set[Pack]()
    found: list[KnownPack] = []
    for layout in _layouts(remote, own, base):
        if not left or len(seen) >= MAX_TABLES:
            break
        new = [pack for pack in layout.packs if pack not in seen][: MAX_TABLES - len(seen)]
        seen.update(new)
        for pack, table in zip(new, pool.map(partial(_table, remote), new), strict=True):
            if table is None:
                continue
            live = tuple(
                names[sha256]
                for sha256, size in zip(table.sha256s, table.sizes, strict=True)
                if wanted.get(sha256) == size
            )
            found.append(KnownPack(pack, table.raw_bytes, live))
            left.difference_update(live)
    return found


def _layouts(remote: Remote, own: ReleaseRef, base: Sequence[ReleaseRef]) -> Iterator[Layout]:
    """Of the release itself, of its predecessors, newest first, of others. Each read when it is asked for."""
    history = remote.call(lambda store: published(store, own.name), "history")
    newest = list(dict.fromkeys(ReleaseRef(own.name, entry.digest) for entry in history))[:MAX_LAYOUTS]
    for ref in dict.fromkeys([own, *newest, *base]):
        try:
            yield remote.call(partial(fetch_layout, name=ref.name, digest=ref.digest), "layout")
        except BlobNotFoundError:
            continue
        except InvalidLayoutError as exc:
            _log.warning("layout_not_reused", release=str(ref), error=str(exc))


def _table(remote: Remote, pack: Pack) -> PackTable | None:
    """What a pack says that it holds; None: it is not there, or not one."""
    key = keys.pack(pack.name)
    if not remote.has(key, pack.size_bytes):
        return None
    try:
        return read_table(pack.size_bytes, partial(remote.read, key))
    except BlobNotFoundError:
        return None
    except (InvalidPackError, CorruptBlobError) as exc:
        _log.warning("pack_not_reused", pack=pack.name, error=str(exc))
        return None
