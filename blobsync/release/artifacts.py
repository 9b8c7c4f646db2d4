"""The files of a manifest, as they stand in its bytes. Pure.

A release may have 100,000 of them: as objects they would take five times the room of the bytes that say the
same. So they are kept as those bytes, with where each begins and what is asked for often in columns; an
`Artifact` is made when one is asked for. Of releases of ordinary size, they are kept once all were made.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, overload

from blobsync.release.artifact import Artifact
from blobsync.release.blob import PACKED_BYTES

_KEPT = 20_000
"""So many are kept as objects, at most."""
DIGEST_BYTES = 32


class Row(NamedTuple):
    """What is asked for of many files at a time.

    Attributes:
        size_bytes: Of the file.
        sha256: In hexadecimal.
        is_first: No file before it has the same content.
    """

    size_bytes: int
    sha256: str
    is_first: bool


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
            self._repeated = repeated(self.digests)
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

    def contents(self) -> Iterator[bytes]:
        """Digest and size of each, as of `contents`."""
        return contents(self.digests, self.sizes)

    def content(self, index: int) -> bytes:
        """Likewise of one."""
        digest = self.digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]
        return digest + self.sizes[index].to_bytes(8, "little")

    def place_of(self, digest: bytes) -> int:
        """Where this digest is first; -1: nowhere."""
        at = self.digests.find(digest)
        while at % DIGEST_BYTES and at >= 0:
            at = self.digests.find(digest, at + 1)
        return at // DIGEST_BYTES

    def rows(self) -> Iterator[Row]:
        """What is asked for most often, of each."""
        again = self.repeated
        for index, size in enumerate(self.sizes):
            yield Row(size, self.sha256(index), index not in again)

    def sha256(self, index: int) -> str:
        """Of one of them, in hexadecimal."""
        return self.digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)].hex()

    def only(self, indices: array[int]) -> Sequence[Artifact]:
        """Some of them, as a view."""
        return self if len(indices) == len(self) else Chosen(self, indices)


class Chosen(Sequence[Artifact]):
    """Some files of a release, by path; of equal contents, all or none. Equal to any sequence of equal files.

    Args:
        of: All of them.
        indices: Which, rising.
    """

    __slots__ = ("_indices", "_of")

    def __init__(self, of: Artifacts, indices: array[int]) -> None:
        self._of, self._indices = of, indices

    def rows(self) -> Iterator[Row]:
        """As of `Artifacts`: of equal contents, all are here or none."""
        of, again = self._of, self._of.repeated
        for index in self._indices:
            yield Row(of.sizes[index], of.sha256(index), index not in again)

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
        if isinstance(other, Chosen) and self._indices == other._indices and self._of == other._of:
            return True
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} artifacts>"


def contents(digests: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Digest and size of each content as one value, which takes little room.

    Args:
        digests: 32 bytes each.
        sizes: As many.
    """
    for index, size in enumerate(sizes):
        yield digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)] + size.to_bytes(8, "little")


def rows_of(files: Sequence[Artifact]) -> Iterator[Row]:
    """What is asked for most often, of each of any files."""
    if isinstance(files, Artifacts | Chosen):
        yield from files.rows()
        return
    seen: set[str] = set()
    for item in files:
        yield Row(item.size_bytes, item.sha256, item.sha256 not in seen)
        seen.add(item.sha256)


def repeated(digests: bytes) -> frozenset[int]:
    """Which of these digests, of 32 bytes each, have been there before."""
    count = len(digests) // DIGEST_BYTES
    starts = range(0, len(digests), DIGEST_BYTES)
    hashes = array("q", (hash(digests[at : at + DIGEST_BYTES]) for at in starts))
    if all(one != other for one, other in pairwise(sorted(hashes))):  # in a third of the room of a set
        return frozenset()
    each = [digests[at : at + DIGEST_BYTES] for at in starts]
    order = sorted(range(count), key=each.__getitem__)  # of equal ones, the first stays first
    return frozenset(index for before, index in pairwise(order) if each[before] == each[index])
