"""Finds a write of Spark by path in a local folder. Standard library only: it also runs in clusters.

Executors on hosts that do not share the folder end such a write without an error, and its data stay on their
disks. What Spark's driver wrote is here in any case: marks of a commit, metadata of a table, or an empty
folder, also if Hadoop is told to write no `_SUCCESS`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_MARKS = {"_SUCCESS", "_spark_metadata", "_delta_log", ".hoodie", "version-hint.text"}
_PART = re.compile(r"part-\d{5,9}\b")
"""A file of Spark's own formats; those of the format `nimbus` have other names."""

FolderState = tuple[int, int]


def state_of(folder: Path) -> FolderState:
    """A value that differs when an entry of the folder was made or removed, or the folder was made anew."""
    found = folder.stat()
    return found.st_ino, found.st_mtime_ns


def spark_write_in(output: Path, before: FolderState) -> Path | None:
    """A folder in an output that Spark has written to; None: there is none.

    Args:
        output: The folder of an attempt's output.
        before: Its state, when it was empty and the task had not begun.
    """
    for place, folders, names in os.walk(output):
        if any(name in _MARKS or _PART.match(name) for name in (*folders, *names)):
            return Path(place)
        if not folders and not names and (place != str(output) or state_of(output) != before):
            return Path(place)
    return None
