"""The mark of the folder of outputs, which tells it from the empty folder of a mount that is not there."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from nimbus.worker.host.files import read_untrusted, write_once

MARK = ".nimbus-data"
"""Name of the file with the mark. Whoever moves the outputs copies it."""
_LIMIT = 64


def why_not_ours(folder: Path, recorded: Callable[[str], str]) -> str:
    """Check the mark. The first worker of a cluster makes the folder and its mark.

    Args:
        folder: `worker.data`.
        recorded: Records a mark unless the cluster has one; returns the cluster's. "": only asks.

    Returns:
        Why no task may use the folder, as text; empty: it is the cluster's.

    Raises:
        StoreUnavailableError: no answer.
    """
    try:
        found = _read(folder)
        if not found and not recorded(""):
            folder.mkdir(parents=True, exist_ok=True)
            write_once(folder / MARK, secrets.token_hex(8).encode())
            (folder / MARK).chmod(0o644)  # workers can run as different users
            found = _read(folder)
    except OSError as exc:
        return f"worker.data {folder}: {exc.strerror}"
    if found and recorded(found) == found:
        return ""
    what = f"another {MARK} than" if found else f"no {MARK} of"
    return (
        f"a worker.data {folder} with {what} the cluster's outputs: mount the folder that all workers share, "
        "or move the outputs with that file"
    )


def is_marked(folder: Path) -> bool:
    """True if a folder has a mark. The worker has checked it against the cluster's when it registered."""
    return (folder / MARK).is_file()


def _read(folder: Path) -> str:
    return (read_untrusted(folder / MARK, _LIMIT) or b"").decode("ascii", "replace")
