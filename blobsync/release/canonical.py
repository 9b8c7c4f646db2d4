r"""The one way in which a manifest is written. Pure.

It is JSON with sorted keys and without white space, so that anybody can read it:

    {"artifacts":[ARTIFACT,ARTIFACT],"name":"flights","schema":2}

    {"chunks":[],"executable":false,"path":"main.py","role":"code","sha256":"...","size_bytes":3}

It is not read with a JSON parser, but by a grammar of exactly this, artifact by artifact. So there is no
second way of writing the same release, nothing to be compared afterwards, and no room is taken for what is
not a manifest: 32 MiB of `[],[],` make 700 MiB of lists. In a string, `\"` is the only escape: the rules
for paths refuse whatever else would need one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from blobsync.errors import InvalidManifestError
from blobsync.release.artifact import MAX_ARTIFACTS, Artifact, Role
from blobsync.release.blob import chunk_count

SCHEMA = 2

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
    rb"(?:,(?=\{)|(?=\]))"  # behind a comma there is one more
)
_CHUNK_CHARS = len('"",') + 64
_ROLES = {role.value.encode(): role for role in Role}


def encode(name: str, artifacts: Iterable[Artifact]) -> bytes:
    """Write a manifest.

    Args:
        name: A sound one.
        artifacts: Likewise, sorted by path.
    """
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
    """Read what `encode` writes, and nothing else: the name and the artifacts, which are not checked yet.

    Raises:
        InvalidManifestError: It is not in that form.
    """
    if not data.startswith(_START):
        raise _not_canonical(data, 0)
    end = data.rfind(b'],"name":"', max(0, len(data) - _MAX_END_BYTES))  # in a path it would be `\"name\":`
    found = _END.fullmatch(data, end) if end >= 0 else None
    if found is None:
        raise _not_canonical(data, max(0, len(data) - _MAX_END_BYTES))
    if (schema := int(found[2])) != SCHEMA:
        raise InvalidManifestError(
            f"the manifest has schema {schema}, this version reads {SCHEMA}; "
            + ("update blobsync" if schema > SCHEMA else "publish the release again")
        )
    return found[1].decode(), tuple(_artifacts(data, end))


def _artifacts(data: bytes, end: int) -> list[Artifact]:
    found, at = list[Artifact](), len(_START)
    while at < end:
        match = _ARTIFACT.match(data, at)
        if match is None:
            raise _not_canonical(data, at)
        if len(found) == MAX_ARTIFACTS:
            raise InvalidManifestError(f"the manifest has more than {MAX_ARTIFACTS} artifacts; not read")
        found.append(_artifact(*match.groups()))
        at = match.end()
    if any(one.path > other.path for one, other in pairwise(found)):
        raise InvalidManifestError("the artifacts of the manifest are not sorted by path; publish again")
    return found


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
