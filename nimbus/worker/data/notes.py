"""Notes: records of a task about the valid files that it has put into the bucket itself.

Spark repeats its own failed tasks, and leaves their files. So the files below an attempt's prefix are not all
valid. A write that was committed as a whole is noted in a file in the attempt's folder, which the runner or
executor reads when the task has ended. User code writes notes, so their content is not trusted.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nimbus.worker.data.manifest import OutputFile, checked_file
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.host.files import read_untrusted, write_atomic

_LARGEST_BYTES = 16 << 20
_MOST = 10_000


def write_note(folder: Path, files: Sequence[OutputFile], replaced: Sequence[str] = ()) -> None:
    """Note valid files, and the paths of earlier ones that they replace, all of them or none."""
    folder.mkdir(exist_ok=True)
    document = json.dumps({"files": [asdict(file) for file in files], "replaced": list(replaced)})
    write_atomic(folder / f"{secrets.token_hex(8)}.json", document.encode())


def read_notes(folder: Path) -> list[OutputFile]:
    """All files that were noted and not replaced.

    Raises:
        OutputRefusedError: a note is invalid.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # nothing was noted
        return []
    try:
        return _read(Path(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)


def _read(folder: Path) -> list[OutputFile]:
    notes = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    if len(notes) > _MOST:
        raise OutputRefusedError(f"the task has noted {len(notes)} writes, and at most {_MOST} are read")
    try:
        found = [_note_in(note) for note in notes]
        replaced = {path for _, paths in found for path in paths}
        return [file for files, _ in found for file in files if file.path not in replaced]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise OutputRefusedError(f"a note of what the task has written cannot be followed: {exc}") from exc


def _note_in(note: Path) -> tuple[list[OutputFile], list[str]]:
    found = json.loads(read_untrusted(note, _LARGEST_BYTES) or b"")
    return [checked_file(file) for file in found["files"]], [str(path) for path in found["replaced"]]
