"""Services that deployed schedulers and workers use; they run on this machine, outside."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
import yaml

from tests.deploy.debian import until


@pytest.fixture
def services(tmp_path: Path) -> Iterator[dict[str, object]]:
    """Configuration of a real ZooKeeper and a real S3 server, which run on this machine."""
    folder = tmp_path / "services"
    nimbus = str(Path(sys.executable).parent / "nimbus")
    command = [nimbus, "up", "--schedulers", "1", "--dir", str(folder)]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as up:
        try:
            until("the services start", (folder / "client.json").exists)
            config = yaml.safe_load((folder / "scheduler-1.yaml").read_text())
            yield {name: config[name] for name in ("zookeeper", "storage")}
        finally:
            up.send_signal(signal.SIGTERM)
