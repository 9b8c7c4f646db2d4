"""What an audit of a release in a bucket finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from blobsync.bucket import keys
from blobsync.release.manifest import ReleaseRef


class Fault(StrEnum):
    """What is wrong with an object."""

    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong.

    Attributes:
        key: Of the object, below the prefix.
        fault: What is wrong with it.
        reason: The same in words.
    """

    key: str
    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """How one release stands in the bucket.

    Attributes:
        ref: Which.
        objects: How many packs and large files it has, as far as is known.
        size_bytes: Theirs.
        flaws: What is wrong, by key. Empty: nothing was found.
    """

    ref: ReleaseRef
    objects: int
    size_bytes: int
    flaws: tuple[Flaw, ...]

    @property
    def is_absent(self) -> bool:
        """Whether there is no such release at all."""
        key = keys.manifest(self.ref.name, self.ref.digest)
        return any(flaw.key == key and flaw.fault is Fault.MISSING for flaw in self.flaws)
