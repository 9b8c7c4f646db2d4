"""A release: an immutable list of files by digest, in one canonical form whose digest names the release.

Pure. Equal files give equal bytes and so the same release on any machine: no time, no author, no order of
discovery is in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from blobsync.errors import InvalidManifestError
from blobsync.names import are_digests, collision, first_path_fault, is_digest, is_release_name
from blobsync.release import canonical as form
from blobsync.release.artifact import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS, Artifact, Role
from blobsync.release.blob import CHUNK_BYTES, Blob, chunk_count
from blobsync.release.canonical import SCHEMA

__all__ = [
    "MAX_ARTIFACTS",
    "MAX_ARTIFACT_BYTES",
    "MAX_MANIFEST_BYTES",
    "MAX_RELEASE_BYTES",
    "SCHEMA",
    "Artifact",
    "Manifest",
    "ReleaseRef",
    "Role",
]

MAX_MANIFEST_BYTES = 32 << 20  # so many artifacts, with paths of up to 180 bytes on average
MAX_RELEASE_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class ReleaseRef:
    """Names one release: whose, and which."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest[:12]}"


@dataclass(frozen=True)
class Manifest:
    """A release. Checked when made, so one that exists can be followed.

    Args:
        name: What it is a release of, such as a pipeline.
        artifacts: In any order; kept sorted by path.

    Raises:
        InvalidManifestError: a name, size or digest that cannot be, or names that collide.
    """

    name: str
    artifacts: tuple[Artifact, ...]
    digest: str = field(init=False, compare=False)
    """SHA-256 of `canonical`, in hexadecimal: names the release."""
    canonical: bytes = field(init=False, compare=False, repr=False)
    """The manifest as it is stored."""

    def __post_init__(self) -> None:
        artifacts = tuple(sorted(self.artifacts, key=lambda item: item.path))
        _check(self.name, artifacts)
        canonical = form.encode(self.name, artifacts)
        if len(canonical) > MAX_MANIFEST_BYTES:
            raise InvalidManifestError(
                f"the manifest of {self.name} would have {len(canonical)} bytes, more than "
                f"{MAX_MANIFEST_BYTES}; publish fewer files"
            )
        self._written_as(canonical, artifacts)

    def _written_as(self, canonical: bytes, artifacts: tuple[Artifact, ...]) -> None:
        object.__setattr__(self, "artifacts", artifacts)
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "digest", hashlib.sha256(canonical).hexdigest())

    @property
    def ref(self) -> ReleaseRef:
        """The release it describes."""
        return ReleaseRef(self.name, self.digest)

    @cached_property
    def blobs(self) -> Mapping[str, Blob]:
        """Distinct blobs, by SHA-256."""
        return {item.sha256: item.blob for item in self.artifacts}

    @property
    def size_bytes(self) -> int:
        """Of all distinct blobs."""
        return sum({item.sha256: item.size_bytes for item in self.artifacts}.values())

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Read a manifest that may come from anywhere.

        Raises:
            InvalidManifestError: it is not exactly what `canonical` of a sound manifest would be.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise InvalidManifestError(
                f"a manifest of {len(data)} bytes is above {MAX_MANIFEST_BYTES}; not read"
            )
        name, artifacts = form.decode(data)
        _check(name, artifacts)
        manifest = object.__new__(cls)  # what was read is canonical: not sorted, checked and written again
        object.__setattr__(manifest, "name", name)
        manifest._written_as(data, artifacts)
        return manifest


def _check(name: str, artifacts: tuple[Artifact, ...]) -> None:
    if not is_release_name(name):
        raise InvalidManifestError(
            f"{name[:200]!r} cannot name a release: letters, digits, dot, dash and underscore, at most 128"
        )
    if len(artifacts) > MAX_ARTIFACTS:
        raise InvalidManifestError(f"release of {name} has {len(artifacts)} files, more than {MAX_ARTIFACTS}")
    paths = [item.path for item in artifacts]
    if (faulty := first_path_fault(paths)) is not None:
        raise InvalidManifestError(f"path {faulty[0][:200]!r} {faulty[1]}")
    _check_digests(artifacts)
    for item in artifacts:
        if item.chunks or not 0 <= item.size_bytes <= CHUNK_BYTES:
            _check_size(item)
    if sum(item.size_bytes for item in artifacts) > MAX_RELEASE_BYTES:
        raise InvalidManifestError(f"release of {name} is larger than {MAX_RELEASE_BYTES} bytes")
    if (pair := collision(paths)) is not None:
        raise InvalidManifestError(
            f"{pair[0]!r} and {pair[1]!r} are one name on some file systems; rename one of them"
        )


def _check_digests(artifacts: tuple[Artifact, ...]) -> None:
    digests = [item.sha256 for item in artifacts]
    if not are_digests(digests):
        wrong = next(item for item in artifacts if not is_digest(item.sha256))
        raise InvalidManifestError(f"sha256 of {wrong.path!r} is not 64 lower-case hexadecimal characters")
    chunked = {(item.sha256, item.chunks) for item in artifacts if item.chunks}
    if len({chunks for _, chunks in chunked}) != len(chunked):  # they would share a name
        raise InvalidManifestError("two digests have the same chunks; publish the release again")
    if len({(item.sha256, item.size_bytes, item.chunks) for item in artifacts}) == len(set(digests)):
        return
    contents: dict[str, Blob] = {}
    for item in artifacts:
        if contents.setdefault(item.sha256, item.blob) != item.blob:
            raise InvalidManifestError(f"one digest has two contents: {item.sha256} at {item.path!r}")


def _check_size(item: Artifact) -> None:
    if not 0 <= item.size_bytes <= MAX_ARTIFACT_BYTES:
        raise InvalidManifestError(
            f"size of {item.path!r} is {item.size_bytes}, not within 0..{MAX_ARTIFACT_BYTES}"
        )
    count = chunk_count(item.size_bytes)
    if len(item.chunks) != count or not are_digests(item.chunks):
        raise InvalidManifestError(f"{item.path!r} of {item.size_bytes} bytes needs {count} chunk digests")
