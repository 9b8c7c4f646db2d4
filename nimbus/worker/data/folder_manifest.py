"""The manifest of a published output in a folder. It lies beside the folder, where its task cannot write.

Threads: `data-transfer_<n>` while files are read.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path, PurePosixPath

from blobsync.names import path_fault
from nimbus.worker.data.bucket import transfers
from nimbus.worker.data.manifest import (
    MAX_MANIFEST_BYTES,
    OutputFile,
    OutputManifest,
    digest_beside,
    prefix_of,
    reference_beside,
)
from nimbus.worker.data.ports import InputRefusedError, OutputRefusedError
from nimbus.worker.data.tree import FoundFolder, folders_of
from nimbus.worker.host.files import read_untrusted, write_once

MAX_FILES = 100_000
"""Limit of the files and empty folders of a published output in a folder."""


def write_manifest(folder: Path, prefix: str) -> str:
    """Write the manifest of an output durably; return the output's reference.

    Args:
        folder: The output, which is flushed and must not change any more.
        prefix: Its path relative to `worker.data`.

    Raises:
        OSError: the disk failed, or a file cannot be read; `filename` names it.
        OutputRefusedError: it cannot be published: links, names, too many files, a file that changes.
    """
    data = _described(folder, prefix).encode()
    if len(data) > MAX_MANIFEST_BYTES:
        raise OutputRefusedError(f"its manifest has {len(data)} bytes, and the limit is {MAX_MANIFEST_BYTES}")
    reference = reference_beside(prefix, data)
    beside = _beside(folder, reference)
    write_once(beside, data)
    beside.chmod(0o644)  # workers and schedulers can run as different users
    return reference


def read_manifest(folder: Path, reference: str) -> OutputManifest:
    """The manifest of an output, verified by its reference.

    Raises:
        InputRefusedError: it is missing, or is not what was committed.
    """
    data = read_untrusted(_beside(folder, reference), MAX_MANIFEST_BYTES)
    if data is None or hashlib.sha256(data).hexdigest() != digest_beside(reference):
        what = "is missing or cannot be read" if data is None else "is not what was committed"
        raise InputRefusedError(f"the manifest {reference} {what}. Run the task that made it again.")
    return OutputManifest.decode(data, reference)


def verify(folder: Path, reference: str) -> None:
    """Compare every byte of an output with its manifest. Reads all of it.

    Raises:
        InputRefusedError: it is not what was committed.
        OSError: it cannot be read now.
    """
    expected = set(read_manifest(folder, reference).files)
    try:
        found = _described(folder, prefix_of(reference))
    except (FileNotFoundError, NotADirectoryError, OutputRefusedError) as exc:
        raise InputRefusedError(f"{reference} is not what was committed: {exc}") from exc
    if different := sorted(expected.symmetric_difference(found.files)):
        raise InputRefusedError(
            f"{folder / different[0].path} is not what was committed. Run the task that made it again."
        )


def _described(folder: Path, prefix: str) -> OutputManifest:
    files: list[OutputFile] = []
    folders: list[str] = []
    with transfers() as each:
        for found in folders_of(folder):
            if found.is_empty and found.path:
                folders.append(found.path)
            if len(files) + len(folders) + len(found.files) > MAX_FILES:
                raise OutputRefusedError(
                    f"it has more than {MAX_FILES} files, the limit for an output that is published: write "
                    "fewer, larger files"
                )
            files += each(partial(_file, found), found.files)
    return OutputManifest(prefix=prefix, files=files, folders=folders)


def _file(folder: FoundFolder, name: str) -> OutputFile:
    path = folder.path_of(name)
    if (fault := path_fault(path)) is not None:
        raise OutputRefusedError(f"{path!r} {fault}: choose another name")
    with folder.digested(name) as (_fd, file):
        return file


def _beside(folder: Path, reference: str) -> Path:
    return folder.with_name(PurePosixPath(reference).name)
