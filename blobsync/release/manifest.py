"""A release: an immutable list of files by digest, in one canonical form whose digest names the release.

Pure. Equal files give equal bytes and so the same release on any machine: no time, no author, no order of
discovery is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blobsync.errors import InvalidManifestError
from blobsync.names import collision, is_digest, is_release_name, path_fault
from blobsync.release.blob import Blob, chunk_count

SCHEMA = 2
MAX_ARTIFACTS = 100_000
MAX_MANIFEST_BYTES = 64 << 20
MAX_ARTIFACT_BYTES = 5 << 40  # the largest object S3 has
MAX_RELEASE_BYTES = 1 << 50

_ARTIFACT_FIELDS = {"chunks", "executable", "path", "role", "sha256", "size_bytes"}


class Role(StrEnum):
    """What a file is for."""

    CODE = "code"
    CONFIGURATION = "configuration"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a release. `chunks` as of `Blob`."""

    path: str
    size_bytes: int
    sha256: str
    role: Role
    executable: bool
    chunks: tuple[str, ...] = ()

    @property
    def blob(self) -> Blob:
        """Its bytes."""
        return Blob(self.sha256, self.size_bytes, self.chunks)


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
        object.__setattr__(self, "artifacts", tuple(sorted(self.artifacts, key=lambda item: item.path)))
        _check(self.name, self.artifacts)
        canonical = _encode(self.name, self.artifacts)
        if len(canonical) > MAX_MANIFEST_BYTES:
            raise InvalidManifestError(
                f"the manifest of {self.name} would have {len(canonical)} bytes, more than "
                f"{MAX_MANIFEST_BYTES}; publish fewer files"
            )
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "digest", hashlib.sha256(canonical).hexdigest())

    @property
    def ref(self) -> ReleaseRef:
        """The release it describes."""
        return ReleaseRef(self.name, self.digest)

    @property
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
        try:
            document = json.loads(data.decode())
        except (ValueError, RecursionError) as exc:  # UnicodeDecodeError is a ValueError
            raise InvalidManifestError(f"the manifest is not JSON: {exc}") from exc
        manifest = _from_document(document)
        if manifest.canonical != data:
            # Also catches doubled keys and any other second way of writing the same thing.
            raise InvalidManifestError(
                f"the manifest of {manifest.name} is not in canonical form, so its digest means nothing; "
                f"publish it again with this library"
            )
        return manifest


def _encode(name: str, artifacts: tuple[Artifact, ...]) -> bytes:
    document = {
        "schema": SCHEMA,
        "name": name,
        "artifacts": [
            {
                "path": item.path,
                "size_bytes": item.size_bytes,
                "sha256": item.sha256,
                "role": item.role.value,
                "executable": item.executable,
                "chunks": item.chunks,
            }
            for item in artifacts
        ],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _from_document(document: Any) -> Manifest:
    if not isinstance(document, dict) or set(document) != {"artifacts", "name", "schema"}:
        raise InvalidManifestError("the manifest is not an object with exactly artifacts, name and schema")
    if document["schema"] != SCHEMA:
        raise InvalidManifestError(
            f"the manifest has schema {str(document['schema'])[:40]!r}, this version reads {SCHEMA}; "
            f"update blobsync"
        )
    items, name = document["artifacts"], document["name"]
    if not isinstance(items, list) or len(items) > MAX_ARTIFACTS or not isinstance(name, str):
        raise InvalidManifestError(
            f"the manifest needs a name and a list of at most {MAX_ARTIFACTS} artifacts"
        )
    return Manifest(name, tuple(_artifact(item) for item in items))


def _artifact(item: Any) -> Artifact:
    if not isinstance(item, dict) or set(item) != _ARTIFACT_FIELDS:
        raise InvalidManifestError(
            f"an artifact does not have exactly {sorted(_ARTIFACT_FIELDS)}: {str(item)[:200]}"
        )
    path, digest, size = item["path"], item["sha256"], item["size_bytes"]
    if not isinstance(path, str) or not isinstance(digest, str) or not isinstance(item["executable"], bool):
        raise InvalidManifestError(f"an artifact has a value of a wrong type: {str(item)[:200]}")
    if type(size) is not int:  # a bool is an int, but no size
        raise InvalidManifestError(f"size_bytes of {path[:200]!r} is not a whole number: {str(size)[:40]}")
    try:
        role = Role(item["role"])
    except ValueError as exc:
        raise InvalidManifestError(f"role of {path[:200]!r} is not one of {[*Role]}") from exc
    chunks = item["chunks"]
    if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
        raise InvalidManifestError(f"chunks of {path[:200]!r} is not a list of digests")
    return Artifact(path, size, digest, role, item["executable"], tuple(chunks))


def _check(name: str, artifacts: tuple[Artifact, ...]) -> None:
    if not is_release_name(name):
        raise InvalidManifestError(
            f"{name[:200]!r} cannot name a release: letters, digits, dot, dash and underscore, at most 128"
        )
    if len(artifacts) > MAX_ARTIFACTS:
        raise InvalidManifestError(f"release of {name} has {len(artifacts)} files, more than {MAX_ARTIFACTS}")
    contents: dict[str, tuple[int, tuple[str, ...]]] = {}
    for item in artifacts:
        _check_artifact(item)
        content = (item.size_bytes, item.chunks)
        if contents.setdefault(item.sha256, content) != content:
            raise InvalidManifestError(f"one digest has two contents: {item.sha256} at {item.path!r}")
    if sum(item.size_bytes for item in artifacts) > MAX_RELEASE_BYTES:
        raise InvalidManifestError(f"release of {name} is larger than {MAX_RELEASE_BYTES} bytes")
    if (pair := collision(item.path for item in artifacts)) is not None:
        raise InvalidManifestError(
            f"{pair[0]!r} and {pair[1]!r} are one name on some file systems; rename one of them"
        )


def _check_artifact(item: Artifact) -> None:
    if (fault := path_fault(item.path)) is not None:
        raise InvalidManifestError(f"path {item.path[:200]!r} {fault}")
    if not is_digest(item.sha256):
        raise InvalidManifestError(f"sha256 of {item.path!r} is not 64 lower-case hexadecimal characters")
    if not 0 <= item.size_bytes <= MAX_ARTIFACT_BYTES:
        raise InvalidManifestError(
            f"size of {item.path!r} is {item.size_bytes}, not within 0..{MAX_ARTIFACT_BYTES}"
        )
    if len(item.chunks) != chunk_count(item.size_bytes) or not all(map(is_digest, item.chunks)):
        raise InvalidManifestError(
            f"{item.path!r} of {item.size_bytes} bytes needs {chunk_count(item.size_bytes)} chunk digests"
        )
