"""The release of the process, as a metric."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Info

from nimbus import __version__


def tell_build(registry: CollectorRegistry) -> None:
    """Add `nimbus_build_info`, which is always 1. Once for each registry."""
    info = {"version": __version__, "python": platform.python_version()}
    Info("nimbus_build", "The release of this process.", registry=registry).info(info)
