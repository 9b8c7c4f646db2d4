"""Selects the code that a child process runs: this checkout, or an older commit."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.line_process import PROJECT

_PACKAGES = ("nimbus", "leader", "blobsync")


@dataclass(frozen=True)
class Revision:
    """The packages of one checkout.

    Args:
        label: `after` or `before`.
        folder: Contains `nimbus`, `leader` and `blobsync`.
        commit: Shown with the figures.
    """

    label: str
    folder: Path
    commit: str

    def environment(self) -> Mapping[str, str]:
        """Environment in which a child imports these packages, and `tests` from this checkout."""
        paths = os.pathsep.join(map(str, (self.folder, PROJECT)))
        # Without PYTHONSAFEPATH, `python -m` imports from the working folder first, which is this checkout.
        return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def this_checkout() -> Revision:
    """The code that this file belongs to, committed or not."""
    dirty = "+" if _git("status", "--porcelain", "--", *_PACKAGES).strip() else ""
    return Revision("after", PROJECT, _git("rev-parse", "--short", "HEAD").strip() + dirty)


@contextmanager
def checkout_of(rev: str, place: Path) -> Iterator[Revision]:
    """Unpack the packages of a commit below `place`.

    It uses `git archive`: `git worktree` would leave a record in the repository if this process is killed.
    """
    commit = _git("rev-parse", "--short", "--verify", f"{rev}^{{commit}}").strip()
    folder = place / "before"
    folder.mkdir()
    packed = place / "before.tar"
    _git("archive", "--format=tar", f"--output={packed}", commit, *_PACKAGES)
    subprocess.run(["tar", "-xf", str(packed), "-C", str(folder)], check=True)
    packed.unlink()
    yield Revision("before", folder, commit)


def interpreter(revision: Revision, place: Path) -> str:
    """A Python that finds the revision's packages first, even if it is started in isolated mode."""
    venv.create(place, symlinks=True)
    paths = f"{revision.folder}\n{sysconfig.get_path('purelib')}\n"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (place / "lib" / version / "site-packages" / "revision.pth").write_text(paths)
    return str(place / "bin" / "python")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PROJECT, check=True, capture_output=True, text=True).stdout
