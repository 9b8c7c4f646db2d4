"""Which packs of earlier releases are used again, and what is packed anew. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blobsync.release.layout import Pack

PACK_STORED_BYTES = 16 << 20
"""A pack is closed when it has so many bytes as stored."""
PACK_RAW_BYTES = 32 << 20
"""And when it has so many before compression."""
MAX_REUSED_PACKS = 64
"""More packs than that are merged, unless the release is so large that it needs them."""
_PACKS_AT_MOST = 4_000
"""Of the largest releases; their packs are larger, since a layout has room for 10,000."""
_LARGEST_STORED_BYTES = 48 << 20


@dataclass(frozen=True, slots=True)
class KnownPack:
    """A pack that is in the store, and what of it a release could use.

    Attributes:
        pack: Which.
        raw_bytes: Of all its members.
        live: Digests of the members that the release wants.
    """

    pack: Pack
    raw_bytes: int
    live: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackPlan:
    """What to do.

    Attributes:
        reused: These packs as they are, largest use first.
        to_pack: Digests of what is in none of them.
    """

    reused: tuple[KnownPack, ...]
    to_pack: frozenset[str]


def plan_packs(wanted: Mapping[str, int], known: Sequence[KnownPack]) -> PackPlan:
    """Use packs of which at least half is wanted, and not too many of them. The rest is packed anew.

    Whoever fetches the release fetches whole packs: what is not wanted in them is moved in vain.

    Args:
        wanted: Size of each small blob of the release, by digest.
        known: Packs, each once.
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
        # Down to half of the limit, so that not every publish from now on packs something anew.
        reused = sorted(reused, key=lambda item: (-item[0], item[1].pack))[: most // 2]
    kept = tuple(item for _, item in reused)
    covered = {sha256 for item in kept for sha256 in item.live}
    return PackPlan(kept, frozenset(wanted.keys() - covered))


def pack_limits(total_bytes: int) -> tuple[int, int]:
    """After how many stored, and how many raw bytes a pack of so many small bytes is closed."""
    stored = min(_LARGEST_STORED_BYTES, max(PACK_STORED_BYTES, total_bytes // _PACKS_AT_MOST))
    return stored, stored * (PACK_RAW_BYTES // PACK_STORED_BYTES)


def _bytes(digests: Sequence[str], sizes: Mapping[str, int]) -> int:
    return sum(sizes[sha256] for sha256 in digests)
