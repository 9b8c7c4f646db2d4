"""Decides which packs of earlier releases a publish uses again, and which files it packs.

Nothing that is read here is trusted: a wrong layout or table makes a release that readers refuse as corrupt,
never wrong bytes on their disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from blobsync.bucket import keys
from blobsync.bucket.releases import fetch_layout, published
from blobsync.bucket.verification import read_table
from blobsync.errors import BlobNotFoundError, CorruptBlobError, InvalidLayoutError, InvalidPackError
from blobsync.log import LazyLog
from blobsync.publishing.packing import PublishStore
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import ReleaseRef
from blobsync.release.pack import PackTable

MAX_LAYOUTS = 8
"""Number of the newest releases of the same name whose layouts are read."""
MAX_TABLES = 512
PACK_STORED_BYTES = 16 << 20
"""A pack is closed when it has this size as stored, or `PACK_RAW_BYTES` before compression."""
PACK_RAW_BYTES = 32 << 20
MAX_REUSED_PACKS = 64
"""If more packs could be reused, some files are packed again, unless the release is so large that it needs
more packs."""
_PACKS_AT_MOST = 4_000
"""If a release would need more packs, its packs are larger: a layout has room for 10,000."""
_LARGEST_STORED_BYTES = 48 << 20

_log = LazyLog(__name__)


@dataclass(frozen=True, slots=True)
class KnownPack:
    """A pack in the store, and its members that a release needs.

    `raw_bytes` is the size of all its members; `live` are the digests of those that the release needs.
    """

    pack: Pack
    raw_bytes: int
    live: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Which packs to use, and what to pack.

    `reused` begins with those that have the most needed bytes; `to_pack` are the digests of the small files
    that are in none of them.
    """

    reused: tuple[KnownPack, ...]
    to_pack: frozenset[str]


def plan_packs(wanted: Mapping[str, int], known: Sequence[KnownPack]) -> PackPlan:
    """Use packs of which the release needs at least half, and not too many of them. The rest is packed.

    Hosts fetch whole packs, also the members that a release does not need. `wanted` has the size of each
    small blob by digest.
    """
    left = dict(wanted)
    reused: list[tuple[int, KnownPack]] = []
    for candidate in sorted(known, key=lambda item: (-_bytes(item.live, wanted), item.pack)):
        own = [sha256 for sha256 in candidate.live if sha256 in left]
        own_bytes = _bytes(own, wanted)
        if own and 2 * own_bytes >= candidate.raw_bytes:
            reused.append((own_bytes, candidate))
            for sha256 in own:
                del left[sha256]
    most = max(MAX_REUSED_PACKS, 2 * -(-sum(wanted.values()) // PACK_STORED_BYTES))
    if len(reused) + bool(left) > most:
        # Down to half of the limit, so that not every later publish packs files again.
        reused = sorted(reused, key=lambda item: (-item[0], item[1].pack))[: most // 2]
    kept = tuple(item for _, item in reused)
    covered = {sha256 for item in kept for sha256 in item.live}
    return PackPlan(kept, frozenset(wanted.keys() - covered))


def pack_limits(total_bytes: int) -> tuple[int, int]:
    """Stored and raw bytes after which a pack is closed, if all small files have `total_bytes`."""
    stored = min(_LARGEST_STORED_BYTES, max(PACK_STORED_BYTES, total_bytes // _PACKS_AT_MOST))
    return stored, stored * (PACK_RAW_BYTES // PACK_STORED_BYTES)


def known_packs(
    store: PublishStore, pool: Executor, own: ReleaseRef, wanted: Mapping[str, int]
) -> list[KnownPack]:
    """Find packs in the store that have blobs of a release.

    The release `own` may have been published before, in part or whole. `wanted`: see `plan_packs`.
    """
    names = {sha256: sha256 for sha256 in wanted}  # share one string between all tables
    left, seen = set(wanted), set[Pack]()
    packs: list[KnownPack] = []
    for layout in _layouts(store, own):
        if not left or len(seen) >= MAX_TABLES:
            break
        new = [pack for pack in layout.packs if pack not in seen][: MAX_TABLES - len(seen)]
        seen.update(new)
        for pack, table in zip(new, pool.map(partial(_table, store), new), strict=True):
            if table is None:
                continue
            live = tuple(
                names[sha256]
                for sha256, size in zip(table.sha256s, table.sizes, strict=True)
                if wanted.get(sha256) == size
            )
            packs.append(KnownPack(pack, table.raw_bytes, live))
            left.difference_update(live)
    return packs


def _layouts(store: PublishStore, own: ReleaseRef) -> Iterator[Layout]:
    """Layouts of the release and of earlier ones, newest first. Reads one at a time."""
    history = store.call(lambda objects: published(objects, own.name), "history")
    newest = list(dict.fromkeys(ReleaseRef(own.name, entry.digest) for entry in history))[:MAX_LAYOUTS]
    for ref in dict.fromkeys([own, *newest]):
        try:
            yield store.call(partial(fetch_layout, name=ref.name, digest=ref.digest), "layout")
        except BlobNotFoundError:
            continue
        except InvalidLayoutError as exc:
            _log.warning("layout_not_reused", release=str(ref), error=str(exc))


def _table(store: PublishStore, pack: Pack) -> PackTable | None:
    """The table of a pack; None: the pack is missing, or cannot be read."""
    key = keys.pack(pack.name)
    if not store.has(key, pack.size_bytes):
        return None
    try:
        return read_table(partial(store.read, key), pack.size_bytes)
    except BlobNotFoundError:
        return None
    except (InvalidPackError, CorruptBlobError) as exc:
        _log.warning("pack_not_reused", pack=pack.name, error=str(exc))
        return None


def _bytes(digests: Sequence[str], sizes: Mapping[str, int]) -> int:
    return sum(sizes[sha256] for sha256 in digests)
