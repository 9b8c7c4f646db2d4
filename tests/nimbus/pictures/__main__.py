"""Command line of the pictures, see the package."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.nimbus.pictures import shots
from tests.nimbus.pictures.cluster import filled, newest_scheduled

DOCS = shots.ROOT / "docs/images"
IN_DOCS = (
    shots.Shown("home", "light", 720),
    shots.Shown("pipeline", "light", 760),
    shots.Shown("run", "light", 720),
    shots.Shown("gantt", "dark", 620),
    shots.Shown("task", "light", 720),
)


def main() -> None:
    """Start the cluster, and take the pictures or keep it."""
    parser = argparse.ArgumentParser(prog="python -m tests.nimbus.pictures", description=__doc__)
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=shots.ROOT / "build/pictures", help="of the pictures")
    add("--docs", action="store_true", help="also replace the pictures of README and documents")
    add("--keep", action="store_true", help="take no pictures; print the addresses until Ctrl-C")
    add("--server", help="take them from a cluster that is kept: the address of a scheduler")
    asked = parser.parse_args()
    if asked.server:
        with httpx.Client(base_url=f"{asked.server}/api/v1", timeout=60) as client:
            _take(asked, asked.server, places_in(lambda path: client.get(path).json()))
        return
    with tempfile.TemporaryDirectory(prefix="nimbus-pictures-") as scratch, filled(Path(scratch)) as cluster:
        server, places = cluster.stack.addresses.schedulers[0], places_in(cluster.ask)
        if asked.keep:
            for place in places.values():
                sys.stdout.write(f"{server}/ui{place}\n")
            sys.stdout.flush()
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
            return
        _take(asked, server, places)


def _take(asked: argparse.Namespace, server: str, places: Mapping[str, str]) -> None:
    shots.take(server, places, asked.folder)
    sys.stdout.write(f"{len(places)} pages in light, dark and at 390 pixels: {asked.folder}\n")
    if asked.docs:
        shots.take_for_docs(server, places, IN_DOCS, DOCS)


def places_in(ask: Callable[[str], Any]) -> dict[str, str]:
    """The paths of the fifteen pages in a cluster, which `ask` asks for documents of its API."""
    listed = ask("/pipelines/shop_daily/releases")["releases"]
    active = ask("/pipelines/shop_daily")["release"]
    old = next(one["digest"] for one in listed if one["digest"] != active)
    failed = newest_scheduled(ask, "shop_daily")["id"]
    return shots.pages({"failed": failed, "new": active, "old": old})


if __name__ == "__main__":
    main()
