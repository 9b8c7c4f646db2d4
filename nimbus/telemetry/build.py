"""The release of the process and the commit that it was built from, also as a metric."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import nimbus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@cache
def commit() -> str:
    """The commit that the package was built from, 40 digits, `-dirty` if files had been changed.

    Empty: it runs from a working copy, or was built without Git. Written by setup.py.
    """
    try:
        return Path(nimbus.__file__).with_name("COMMIT").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def release() -> str:
    """Version and commit, such as `0.1.0+3f2a9c1d0b7e`, as schedulers and workers register them."""
    short = commit()[:12] + commit()[40:]
    return f"{nimbus.__version__}+{short}" if short else nimbus.__version__


def tell_build(registry: CollectorRegistry) -> None:
    """Add `nimbus_build_info`, which is always 1. Once for each registry."""
    from prometheus_client import Info

    info = {"version": nimbus.__version__, "commit": commit(), "python": platform.python_version()}
    Info(
        "nimbus_build",
        "Always 1: the release of this process, and the commit that its package was built from. Empty "
        "commit: a working copy.",
        registry=registry,
    ).info(info)
