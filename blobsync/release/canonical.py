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
from array import array
from collections.abc import Callable, Iterable
from itertools import islice
from operator import gt

from blobsync.errors import InvalidManifestError
from blobsync.release.artifact import MAX_ARTIFACTS, Artifact, Role
from blobsync.release.artifacts import Artifacts
from blobsync.release.blob import chunk_count

SCHEMA = 2

_START = b'{"artifacts":['
_AT_A_TIME = 4096
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
    written, separator, each = bytearray(_START), b"", iter(artifacts)
    while batch := ",".join(map(_encoded, islice(each, _AT_A_TIME))):  # all at once takes thrice the room
        written += separator + batch.encode()
        separator = b","
    return bytes(written + f'],"name":"{name}","schema":{SCHEMA}}}'.encode())


def _encoded(item: Artifact) -> str:
    chunks = ",".join(f'"{chunk}"' for chunk in item.chunks) if item.chunks else ""
    path = item.path.replace('"', '\\"') if '"' in item.path else item.path
    return (
        f'{{"chunks":[{chunks}],"executable":{"true" if item.executable else "false"},"path":"{path}",'
        f'"role":"{item.role.value}","sha256":"{item.sha256}","size_bytes":{item.size_bytes}}}'
    )


def decode(data: bytes, take_paths: Callable[[list[str]], None]) -> tuple[str, Artifacts]:
    """Read what `encode` writes, and nothing else. What it says is still to be checked.

    Args:
        data: The manifest.
        take_paths: Given all paths, some at a time: they are not kept.

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
    return found[1].decode(), _scanned(data, end, take_paths)


def _scanned(data: bytes, end: int, take_paths: Callable[[list[str]], None]) -> Artifacts:
    starts, sizes, digests = array("I"), array("q"), bytearray()
    at, paths = len(_START), [""]
    while at < end:
        hexadecimal, paths = list[bytes](), paths[-1:]  # with the one before
        for _ in range(_AT_A_TIME):
            match = _ARTIFACT.match(data, at)
            if match is None:
                raise _not_canonical(data, at)
            chunks, path, sha256, size = match.group(1, 3, 5, 6)
            size_bytes = int(size)
            if chunks:
                _check_chunk_count(chunks, path, size_bytes)
            paths.append(_path(path))
            starts.append(at)
            sizes.append(size_bytes)
            hexadecimal.append(sha256)
            at = match.end()
            if at >= end:
                break
        if len(starts) > MAX_ARTIFACTS:
            raise InvalidManifestError(f"the manifest has more than {MAX_ARTIFACTS} artifacts; not read")
        if any(map(gt, paths, islice(paths, 1, None))):
            raise InvalidManifestError("the artifacts of the manifest are not sorted by path; publish again")
        take_paths(paths[1:])
        digests += bytes.fromhex(b"".join(hexadecimal).decode())
    return Artifacts(data, starts, sizes, bytes(digests), _read)


def _check_chunk_count(chunks: bytes, path: bytes, size_bytes: int) -> None:
    """Before room is made for them."""
    if (len(chunks) + 1) // _CHUNK_CHARS != chunk_count(size_bytes):
        raise InvalidManifestError(f"{path[:200]!r} of {size_bytes} bytes has another number of chunks")


def _read(data: bytes, at: int) -> Artifact:
    match = _ARTIFACT.match(data, at)
    assert match is not None  # noqa: S101 - it matched when the manifest was read
    chunks, executable, path, role, sha256, size = match.groups()
    return Artifact(
        _path(path),
        int(size),
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
