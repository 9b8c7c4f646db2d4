"""The manifest of an output in a bucket: which files it has. Pure.

Key of a manifest: `<prefix of the attempt>/manifest-<sha256 of its bytes>.json`. That key, without what all
keys of the place begin with, is the reference of the output. So END vouches for every byte of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from nimbus.worker.data.ports import InputRefusedError

_SCHEMA = 1
_KEY = re.compile(r"(?P<prefix>.+)/manifest-(?P<sha256>[0-9a-f]{64})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OutputFile:
    """One file. Its key is the attempt's prefix and `path`."""

    path: str
    """Relative to the output, with `/`."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputManifest:
    """All of an output."""

    prefix: str
    """Of the attempt: so no two manifests are equal, whatever is in the outputs."""
    files: Sequence[OutputFile]
    folders: Sequence[str] = ()
    """Those without files."""

    def encode(self) -> bytes:
        """As it is stored."""
        document = {
            "schema": _SCHEMA,
            "prefix": self.prefix,
            "files": [asdict(file) for file in sorted(self.files)],
            "folders": sorted(self.folders),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, reference: str) -> OutputManifest:
        """Read what `encode` wrote.

        Raises:
            InputRefusedError: of another schema, or it names something outside of the output.
        """
        try:
            return cls._decoded(json.loads(data), parts_of(reference)[0])
        except (ValueError, KeyError, TypeError) as exc:
            raise InputRefusedError(f"the manifest {reference} cannot be followed: {exc}") from exc

    @classmethod
    def _decoded(cls, document: Any, prefix: str) -> OutputManifest:
        if document["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, and this release knows {_SCHEMA}")
        if document["prefix"] != prefix:
            raise ValueError(f"it is that of {document['prefix']}")
        folders = tuple(document["folders"])
        for path in folders:
            _check_path(path)
        return cls(prefix=prefix, files=tuple(map(checked_file, document["files"])), folders=folders)


def checked_file(document: Any) -> OutputFile:
    """Read a file's entry.

    Raises:
        ValueError: it names something outside of the output, or its digest is none.
        TypeError: it has other fields, or fields of other types.
    """
    file = OutputFile(**document)
    _check_path(file.path)
    if _DIGEST.fullmatch(file.sha256) is None or not isinstance(file.size_bytes, int):
        raise ValueError(f"{file.path!r} has no size, or a digest that is none")
    return file


def manifest_key(prefix: str, data: bytes) -> str:
    """The key of a manifest with these bytes."""
    return f"{prefix}/manifest-{hashlib.sha256(data).hexdigest()}.json"


def is_manifest(reference: str) -> bool:
    """Tell the reference of an output in a bucket from that of one in a folder."""
    return _KEY.fullmatch(reference) is not None


def parts_of(reference: str) -> tuple[str, str]:
    """Prefix of the attempt and SHA-256 of the manifest.

    Raises:
        InputRefusedError: it is the reference of an output in a folder.
    """
    match = _KEY.fullmatch(reference)
    if match is None:
        raise InputRefusedError(
            f"input {reference} was committed to a folder, and this worker keeps outputs in a bucket: give "
            f"all workers the same `worker.data`, and start runs anew after a change of it"
        )
    return match["prefix"], match["sha256"]


def _check_path(path: str) -> None:
    parts = PurePosixPath(path)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\0" in path:
        raise ValueError(f"{path!r} lies outside of the output")
