r"""A release: an immutable list of files by digest, in one canonical form whose digest names the release.

Pure. Equal files give equal bytes and so the same release on any machine: it contains no time, no author and
no order of discovery. The form is JSON with sorted keys and without white space; any tool can read it:

    {"artifacts":[ARTIFACT,ARTIFACT],"name":"flights","schema":2}

    {"chunks":[],"executable":false,"path":"main.py","role":"code","sha256":"...","size_bytes":3}

It is not read with a JSON parser, but by a grammar of exactly this form, artifact by artifact. So a release
can be written in only one way, no comparison is needed afterwards, and data that are no manifest take no
memory: 32 MiB of `[],[],` make 700 MiB of lists. In a string, `\"` is the only escape: the rules
for paths refuse all other characters that need one.

The content of a file is a *blob*. One of up to 16 MiB is named and verified by its SHA-256. A larger one also
has a BLAKE3 digest for each chunk of 16 MiB, so that its chunks can be fetched in parallel, verified one by
one, and kept when others fail. Verifying the chunks does not verify the SHA-256, so such a blob is named by
the digest of its chunk digests: no bytes can be stored under the SHA-256 of other bytes. A reader that
verifies the SHA-256 must verify the chunk digests, too: bytes that match only the SHA-256 of a manifest may
not match the name, and would replace other bytes under it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from blake3 import blake3

from blobsync.errors import InvalidManifestError
from blobsync.names import are_digests, collision, first_path_fault, is_digest, is_release_name

CHUNK_BYTES = 16 << 20
"""Size of the chunks of a large blob; the last one is shorter."""

PACKED_BYTES = 4 << 20
"""Blobs up to this size are stored in packs, larger ones as separate objects."""

_CHUNKED_PREFIX = "b3-"


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a file. `chunks` has the BLAKE3 of each chunk, if there is more than one."""

    sha256: str
    size_bytes: int
    chunks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the object store and on disk."""
        return _CHUNKED_PREFIX + chunks_digest(self.chunks) if self.chunks else self.sha256

    @property
    def is_packed(self) -> bool:
        """True if it is stored in a pack."""
        return self.size_bytes <= PACKED_BYTES


def chunks_digest(chunks: tuple[str, ...]) -> str:
    """One BLAKE3 digest of a list of BLAKE3 digests."""
    return blake3(b"".join(bytes.fromhex(chunk) for chunk in chunks)).hexdigest()


def chunk_count(size_bytes: int) -> int:
    """Number of chunk digests of a blob of that size."""
    return 0 if size_bytes <= CHUNK_BYTES else -(-size_bytes // CHUNK_BYTES)


SCHEMA = 2
MAX_ARTIFACTS = 100_000
MAX_ARTIFACT_BYTES = 5 << 40  # the largest object S3 has
MAX_MANIFEST_BYTES = 32 << 20  # enough for MAX_ARTIFACTS with paths of up to 180 bytes on average
MAX_RELEASE_BYTES = 1 << 50


class Role(StrEnum):
    """Purpose of a file."""

    CODE = "code"
    CONFIGURATION = "configuration"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a release. For `chunks` see `Blob`."""

    path: str
    size_bytes: int
    sha256: str
    role: Role
    executable: bool
    chunks: tuple[str, ...] = ()

    @property
    def blob(self) -> Blob:
        """The content of the file."""
        return Blob(self.sha256, self.size_bytes, self.chunks)


@dataclass(frozen=True, slots=True)
class ReleaseRef:
    """The name and the digest of a release."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest[:12]}"


@dataclass(frozen=True)
class Manifest:
    """A release. Checked when made, then trusted.

    Args:
        name: Name of the release, such as that of a pipeline.
        artifacts: In any order; kept sorted by path.

    Raises:
        InvalidManifestError: a name, size or digest is not valid, or names collide.
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
        canonical = encode(self.name, artifacts)
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
        """Size of all distinct blobs."""
        return sum({item.sha256: item.size_bytes for item in self.artifacts}.values())

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Parse a manifest from an untrusted source.

        InvalidManifestError if it is not valid, or not in canonical form.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise InvalidManifestError(
                f"a manifest of {len(data)} bytes is above {MAX_MANIFEST_BYTES}; not read"
            )
        name, artifacts = decode(data)
        _check(name, artifacts)
        manifest = object.__new__(cls)  # it is canonical, so it need not be sorted, checked and encoded again
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


_START = b'{"artifacts":['
_END = re.compile(rb'\],"name":"([A-Za-z0-9._-]{0,128})","schema":(0|[1-9][0-9]{0,8})\}')
_MAX_END_BYTES = 200
_ARTIFACT = re.compile(
    rb'\{"chunks":\[((?:"[0-9a-f]{64}"(?:,"[0-9a-f]{64}")*+)?+)\],'
    rb'"executable":(true|false),'
    rb'"path":"((?:[^"\\]++|\\")*+)",'
    rb'"role":"(' + "|".join(Role).encode() + rb')",'
    rb'"sha256":"([0-9a-f]{64})",'
    rb'"size_bytes":(0|[1-9][0-9]{0,15})\}'
    rb"(?:,(?=\{)|(?=\]))"  # after a comma there is another artifact
)
_CHUNK_CHARS = len('"",') + 64
_ROLES = {role.value.encode(): role for role in Role}


def encode(name: str, artifacts: Iterable[Artifact]) -> bytes:
    """Write checked artifacts, sorted by path, in canonical form."""
    end = f'],"name":"{name}","schema":{SCHEMA}}}'.encode()
    return b"".join([_START, b",".join(map(_encoded, artifacts)), end])


def _encoded(item: Artifact) -> bytes:
    chunks = ",".join(f'"{chunk}"' for chunk in item.chunks) if item.chunks else ""
    path = item.path.replace('"', '\\"') if '"' in item.path else item.path
    return (
        f'{{"chunks":[{chunks}],"executable":{"true" if item.executable else "false"},"path":"{path}",'
        f'"role":"{item.role.value}","sha256":"{item.sha256}","size_bytes":{item.size_bytes}}}'
    ).encode()


def decode(data: bytes) -> tuple[str, tuple[Artifact, ...]]:
    """Parse the canonical form and nothing else. Returns the name and the artifacts, not checked yet.

    InvalidManifestError if it is not in that form.
    """
    if not data.startswith(_START):
        raise _not_canonical(data, 0)
    end = data.rfind(b'],"name":"', max(0, len(data) - _MAX_END_BYTES))  # in a path it would be `\"name\":`
    match = _END.fullmatch(data, end) if end >= 0 else None
    if match is None:
        raise _not_canonical(data, max(0, len(data) - _MAX_END_BYTES))
    if (schema := int(match[2])) != SCHEMA:
        raise InvalidManifestError(
            f"the manifest has schema {schema}, this version reads {SCHEMA}; "
            + ("update blobsync" if schema > SCHEMA else "publish the release again")
        )
    return match[1].decode(), tuple(_artifacts(data, end))


def _artifacts(data: bytes, end: int) -> list[Artifact]:
    artifacts, at = list[Artifact](), len(_START)
    while at < end:
        match = _ARTIFACT.match(data, at)
        if match is None:
            raise _not_canonical(data, at)
        if len(artifacts) == MAX_ARTIFACTS:
            raise InvalidManifestError(f"the manifest has more than {MAX_ARTIFACTS} artifacts; not read")
        artifacts.append(_artifact(*match.groups()))
        at = match.end()
    if any(first.path > other.path for first, other in pairwise(artifacts)):
        raise InvalidManifestError("the artifacts of the manifest are not sorted by path; publish again")
    return artifacts


def _artifact(
    chunks: bytes, executable: bytes, path: bytes, role: bytes, sha256: bytes, size: bytes
) -> Artifact:
    size_bytes = int(size)
    if chunks and (len(chunks) + 1) // _CHUNK_CHARS != chunk_count(size_bytes):  # before memory is taken
        raise InvalidManifestError(f"{path[:200]!r} of {size_bytes} bytes has another number of chunks")
    return Artifact(
        _path(path),
        size_bytes,
        sha256.decode(),
        _ROLES[role],
        executable == b"true",
        tuple(chunks[1:-1].decode().split('","')) if chunks else (),
    )


def _path(path: bytes) -> str:
    try:
        return (path.replace(b'\\"', b'"') if b"\\" in path else path).decode()
    except UnicodeDecodeError as exc:
        raise InvalidManifestError(f"a path of the manifest is not UTF-8: {path[:200]!r}") from exc


def _not_canonical(data: bytes, at: int) -> InvalidManifestError:
    return InvalidManifestError(
        f"the manifest is not in canonical form from byte {at} on: {data[at : at + 100]!r}; "
        f"publish the release again with this library"
    )
