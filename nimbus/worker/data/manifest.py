"""Lists of an output's files: its manifest, and the notes of its task.

Each output in a bucket has a manifest, and each published output in a folder. Its key, relative to the place,
is the reference of the output: in a bucket `<prefix of the attempt>/manifest-<sha256 of its bytes>.json`,
beside a folder `<prefix of the attempt>.manifest-<sha256>.json`. So END verifies every byte of it. The
reference of any other output in a folder is the prefix.

Notes are records of a task about valid files that it has put into the bucket itself. Spark repeats its own
failed tasks, and leaves their files, so the files below an attempt's prefix are not all valid. A write that
was committed as a whole is noted in a file in the attempt's folder, which the runner or executor reads when
the task has ended. User code writes notes, so their content is not trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nimbus.worker.data.ports import InputRefusedError, OutputRefusedError
from nimbus.worker.host.files import read_untrusted, write_atomic

MAX_MANIFEST_BYTES = 64 << 20
"""Largest manifest of an output in a folder, and largest that a scheduler reads: some 300,000 files."""
_MAX_NOTE_BYTES = 16 << 20
_MAX_NOTES = 10_000
_SCHEMA = 1
_KEY = re.compile(r"(?P<prefix>.+)/manifest-(?P<sha256>[0-9a-f]{64})\.json")
_BESIDE = re.compile(r"(?P<prefix>.+)\.manifest-(?P<sha256>[0-9a-f]{64})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class OutputFile:
    """One file. Its key is the attempt's prefix and `path`."""

    path: str
    """Relative to the output, with `/`."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class OutputManifest:
    """The files and folders of an output."""

    prefix: str
    """The attempt's prefix, which makes every manifest unique."""
    files: Sequence[OutputFile]
    folders: Sequence[str] = ()
    """Folders without files."""

    def encode(self) -> bytes:
        """The stored bytes."""
        document = {
            "schema": _SCHEMA,
            "prefix": self.prefix,
            "files": [asdict(file) for file in sorted(self.files)],
            "folders": sorted(self.folders),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, reference: str) -> OutputManifest:
        """The manifest of `encode`. InputRefusedError: another schema, or a path outside of the output."""
        try:
            return cls._decoded(json.loads(data), prefix_of(reference))
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
    """A file's entry. ValueError, TypeError: a path outside, an invalid digest, or other fields."""
    file = OutputFile(**document)
    _check_path(file.path)
    if _DIGEST.fullmatch(file.sha256) is None or not isinstance(file.size_bytes, int):
        raise ValueError(f"{file.path!r} has no size, or a digest that is none")
    return file


def manifest_key(prefix: str, data: bytes) -> str:
    """The key of a manifest with these bytes."""
    return f"{prefix}/manifest-{hashlib.sha256(data).hexdigest()}.json"


def reference_beside(prefix: str, data: bytes) -> str:
    """The reference of an output in a folder whose manifest has these bytes."""
    return f"{prefix}.manifest-{hashlib.sha256(data).hexdigest()}.json"


def digest_beside(reference: str) -> str | None:
    """The manifest's SHA-256 of an output in a folder; None: it has none, or is in a bucket."""
    match = _BESIDE.fullmatch(reference)
    return None if match is None else match["sha256"]


def prefix_of(reference: str) -> str:
    """The attempt's prefix, which is the folder of an output in a folder."""
    match = _KEY.fullmatch(reference) or _BESIDE.fullmatch(reference)
    return reference if match is None else match["prefix"]


def is_manifest(reference: str) -> bool:
    """True for the reference of an output in a bucket, false for one in a folder."""
    return _KEY.fullmatch(reference) is not None


def parts_of(reference: str) -> tuple[str, str]:
    """The attempt's prefix and the manifest's SHA-256. InputRefusedError: it is of an output in a folder."""
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


def write_note(folder: Path, files: Sequence[OutputFile], replaced: Sequence[str] = ()) -> None:
    """Note valid files, and the paths of earlier ones that they replace, all of them or none."""
    folder.mkdir(exist_ok=True)
    document = json.dumps({"files": [asdict(file) for file in files], "replaced": list(replaced)})
    write_atomic(folder / f"{secrets.token_hex(8)}.json", document.encode())


def read_notes(folder: Path) -> list[OutputFile]:
    """All files that were noted and not replaced. OutputRefusedError: a note is invalid."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # nothing was noted
        return []
    try:
        return _notes_in(Path(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)


def _notes_in(folder: Path) -> list[OutputFile]:
    notes = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    if len(notes) > _MAX_NOTES:
        raise OutputRefusedError(f"the task has noted {len(notes)} writes, and at most {_MAX_NOTES} are read")
    try:
        writes = [_note_in(note) for note in notes]
        replaced = {path for _, paths in writes for path in paths}
        return [file for files, _ in writes for file in files if file.path not in replaced]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise OutputRefusedError(f"a note of what the task has written cannot be followed: {exc}") from exc


def _note_in(note: Path) -> tuple[list[OutputFile], list[str]]:
    document = json.loads(read_untrusted(note, _MAX_NOTE_BYTES) or b"")
    return [checked_file(file) for file in document["files"]], [str(path) for path in document["replaced"]]
