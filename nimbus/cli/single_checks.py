"""Checks that a single scheduler's database is intact and on a local disk. Raises nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.findings import Finding, Verdict
from nimbus.cli.words import size

if TYPE_CHECKING:
    from nimbus.config import Settings

_OVER_A_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre"})


def store_of(settings: Settings) -> Iterator[Finding]:
    """Check the database, if the configuration is that of a single scheduler."""
    from nimbus.bootstrap.foundation import store_file

    file = store_file(settings)
    if file is None:
        return
    name = f"store {file}"
    if (kind := _file_system(file)) in _OVER_A_NETWORK:
        advice = "put scheduler.state_dir on a local disk: locks and shared memory do not hold over a network"
        yield Finding(name, Verdict.FAIL, f"lies on {kind}", advice)
    else:
        yield _checked(name, file)


def _checked(name: str, file: Path) -> Finding:
    try:
        if not file.exists():
            return Finding(name, Verdict.OK, "none yet: it is made at the first start")
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except OSError as exc:
        return Finding(name, Verdict.WARN, str(exc.strerror), "ask as the scheduler's user")
    except sqlite3.Error as exc:
        said = str(exc)
    if said != "ok":
        advice = "stop the scheduler and restore the whole folder from a backup, or begin with an empty one"
        return Finding(name, Verdict.FAIL, str(said), advice)
    return Finding(name, Verdict.OK, f"whole, {size(file.stat().st_size)}")


def _file_system(file: Path) -> str:
    import psutil

    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in file.absolute().parents if place in mounts), "")
