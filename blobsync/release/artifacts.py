"""The files of a manifest, as they stand in its bytes. Pure.

A release may have 100,000 of them: as objects they would take five times the room of the bytes that say the
same. So they are kept as those bytes, with where each begins and what is asked for often in columns; an
`Artifact` is made when one is asked for. Of releases of ordinary size, they are kept once all were made.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import overload

from blobsync.release.artifact import Artifact
from blobsync.release.blob import PACKED_BYTES

_KEPT = 20_000
"""So many are kept as objects, at most."""
DIGEST_BYTES = 32


class Artifacts(Sequence[Artifact]):
    """All files of one release, by path. Equal to any sequence of equal files.

    Args:
        data: The manifest.
        starts: Where each begins in it.
        sizes: Of the files, in bytes.
        digests: Their SHA-256, 32 bytes each.
        read: Gives the artifact at an offset of the manifest.
    """

    __slots__ = ("_data", "_made", "_read", "_repeated", "_starts", "digests", "sizes")

    def __init__(
        self,
        data: bytes,
        starts: array[int],
        sizes: array[int],
        digests: bytes,
        read: Callable[[bytes, int], Artifact],
    ) -> None:
        self._data, self._starts, self.sizes, self.digests, self._read = data, starts, sizes, digests, read
        self._made: tuple[Artifact, ...] | None = None
        self._repeated: frozenset[int] | None = None

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Artifact: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Artifact]: ...
    def __getitem__(self, index: int | slice) -> Artifact | Sequence[Artifact]:
        if self._made is not None:
            return self._made[index]
        if isinstance(index, slice):
            return tuple(self._read(self._data, start) for start in self._starts[index])
        return self._read(self._data, self._starts[index])

    def __iter__(self) -> Iterator[Artifact]:
        if self._made is None:
            each = (self._read(self._data, start) for start in self._starts)
            if len(self) > _KEPT:
                return each
            self._made = tuple(each)
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Artifacts):
            return self._data == other._data
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(self.digests)

    def __repr__(self) -> str:
        return f"<{len(self)} artifacts>"

    @property
    def repeated(self) -> frozenset[int]:
        """Which have the content of one before."""
        if self._repeated is None:
            self._repeated = _repeated(self.digests)
        return self._repeated

    @property
    def size_bytes(self) -> int:
        """Of their distinct contents."""
        return sum(self.sizes) - sum(self.sizes[index] for index in self.repeated)

    def large(self) -> Iterator[Artifact]:
        """Those that do not travel in packs."""
        for index, size in enumerate(self.sizes):
            if size > PACKED_BYTES:
                yield self[index]

    def only(self, indices: array[int]) -> Sequence[Artifact]:
        """Some of them, as a view."""
        return self if len(indices) == len(self) else Chosen(self, indices)


class Chosen(Sequence[Artifact]):
    """Some files of a release, by path. Equal to any sequence of equal files.

    Args:
        of: All of them.
        indices: Which.
    """

    __slots__ = ("_indices", "_of")

    def __init__(self, of: Artifacts, indices: array[int]) -> None:
        self._of, self._indices = of, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Artifact: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Artifact]: ...
    def __getitem__(self, index: int | slice) -> Artifact | Sequence[Artifact]:
        if isinstance(index, slice):
            return tuple(self._of[each] for each in self._indices[index])
        return self._of[self._indices[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} artifacts>"


def _repeated(digests: bytes) -> frozenset[int]:
    count = len(digests) // DIGEST_BYTES
    each = [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
    if len(set(map(hash, each))) == count:  # in half the room of the digests themselves
        return frozenset()
    order = sorted(range(count), key=each.__getitem__)  # of equal ones, the first stays first
    return frozenset(index for before, index in pairwise(order) if each[before] == each[index])
