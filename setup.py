"""What pyproject.toml cannot say: the commit goes into the package, and only what is there now."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
COMMIT = Path("nimbus/COMMIT")
SHIPPED = ("configs", "deploy", "examples")
"""Folders that are in the wheel, too: `nimbus init` and `nimbus config` copy from them."""


def commit() -> str:
    """The commit of this working copy; of an unpacked sdist, the one in its file; else nothing."""
    words = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if (HERE / ".git").exists():
        try:
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""
    return (HERE / COMMIT).read_text().strip() if (HERE / COMMIT).exists() else ""


class BuildPy(build_py):
    """Builds from nothing: `build/lib` of an earlier build may have modules that are deleted since."""

    def run(self) -> None:
        """See `setuptools.Command`."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            (Path(self.build_lib) / COMMIT).write_text(commit() + "\n")
            for name in SHIPPED:
                folder = Path(self.build_lib) / "nimbus" / "shipped" / name
                shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns("wheels", "__pycache__"))


class Sdist(sdist):
    """Notes the commit, which an unpacked sdist cannot ask Git for."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """See `setuptools.command.sdist`."""
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / COMMIT).write_text(commit() + "\n")


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
