"""The one real ZooKeeper of a run, and a description of its log's file system."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.leader.figures import file_system, fsync_ms


@dataclass(frozen=True)
class BenchServer:
    """A running server, and the folder of its data."""

    server: ZooKeeperServer
    folder: Path
    file_system: str
    fsync_ms: dict[str, float]

    def described(self) -> str:
        return (
            f"one ZooKeeper, every write fsynced; transaction log on {self.file_system}, where a durable "
            f"write of 512 bytes takes {self.fsync_ms['p50']:.3f} ms (p50), {self.fsync_ms['p99']:.3f} (p99)"
        )


@contextmanager
def bench_server(place: Path) -> Iterator[BenchServer]:
    """Start a server with its data in a new folder below `place`, and remove them afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-leader-", dir=place.absolute()))
    server = ZooKeeperServer(folder / "zookeeper")
    try:
        probe = fsync_ms(folder)
        server.start()
        yield BenchServer(server, folder, file_system(folder), probe)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
