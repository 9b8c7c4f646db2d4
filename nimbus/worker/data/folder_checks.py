"""Checks of the shared folder of outputs: is it the cluster's, and has Spark written to it by path?

A mark tells the folder from the empty folder of a mount that is not there. Executors on hosts that do not
share the folder end a write of Spark without an error, and its data stay on their disks. What Spark's driver
wrote is here in any case: marks of a commit, metadata of a table, or an empty folder, also without
`_SUCCESS`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Tuple

from nimbus.worker.host.files import read_untrusted, write_once

MARK = ".nimbus-data"
"""Name of the file with the mark. Whoever moves the outputs copies it."""
_MARK_BYTES = 64
_OF_SPARK = {"_SUCCESS", "_spark_metadata", "_delta_log", ".hoodie", "version-hint.text"}
_PART = re.compile(r"part-\d{5,9}\b")
"""A file of Spark's own formats; those of the format `nimbus` have other names."""

FolderState = Tuple[int, int]


def why_not_ours(folder: Path, recorded: Callable[[str], str]) -> str:
    """Why no task may use the folder `worker.data`; empty: it is the cluster's.

    The first worker of a cluster makes the folder and its mark. StoreUnavailableError: no answer.

    Args:
        folder: `worker.data`.
        recorded: Records a mark unless the cluster has one; returns the cluster's. "": only asks.
    """
    try:
        mark = _read(folder)
        if not mark and not recorded(""):
            folder.mkdir(parents=True, exist_ok=True)
            write_once(folder / MARK, secrets.token_hex(8).encode())
            (folder / MARK).chmod(0o644)  # workers can run as different users
            mark = _read(folder)
    except OSError as exc:
        return f"worker.data {folder}: {exc.strerror}"
    if mark and recorded(mark) == mark:
        return ""
    what = f"another {MARK} than" if mark else f"no {MARK} of"
    return (
        f"a worker.data {folder} with {what} the cluster's outputs: mount the folder that all workers share, "
        "or move the outputs with that file"
    )


def is_marked(folder: Path) -> bool:
    """True if a folder has a mark. The worker has checked it against the cluster's when it registered."""
    return (folder / MARK).is_file()


def _read(folder: Path) -> str:
    return (read_untrusted(folder / MARK, _MARK_BYTES) or b"").decode("ascii", "replace")


def state_of(folder: Path) -> FolderState:
    """A value that differs when an entry of the folder was made or removed, or the folder was made anew."""
    status = folder.stat()
    return status.st_ino, status.st_mtime_ns


def spark_write_in(output: Path, before: FolderState) -> Path | None:
    """A folder in an output that Spark has written to; None: there is none.

    `before`: the state of the output when it was empty and the task had not begun.
    """
    for place, folders, names in os.walk(output):
        if any(name in _OF_SPARK or _PART.match(name) for name in (*folders, *names)):
            return Path(place)
        if not folders and not names and (place != str(output) or state_of(output) != before):
            return Path(place)
    return None
