"""Settings that are passed to the libraries."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.bootstrap import resources
from nimbus.config import Settings, load_settings

SYNC = """\
zookeeper: {hosts: "zk1:2181"}
storage: {bucket: nimbus}
scheduler: {state_dir: /var/lib/nimbus}
worker: {data: /srv/data}
sync:
  threads: 9
  bandwidth_bytes_per_s: 2000000
  look_interval: 7s
  scrub_interval: 3h
  scrub_bytes_per_s: null
  retry_max: 11s
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "nimbus.yaml"
    file.write_text(SYNC)
    return load_settings(file, {})


def test_sync_settings_reach_the_syncer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Ground:
        def __init__(self) -> None:
            self.settings, self.store, self.local = settings, object(), object()

    monkeypatch.setattr(resources, "Syncer", lambda *_parts, **named: given.update(named))

    resources.build_syncer(Ground(), print)  # type: ignore[arg-type]

    assert given.pop("retry").max_wait == timedelta(seconds=11)
    assert given == {
        "on_change": print,
        "threads": 9,
        "bandwidth_bytes_per_s": 2_000_000,
        "look_interval": timedelta(seconds=7),
        "scrub_interval": timedelta(hours=3),
        "scrub_bytes_per_s": None,
    }


def test_storage_has_a_connection_for_each_thread_that_fetches(settings: Settings) -> None:
    assert resources.s3_config(settings).max_connections > settings.sync.threads


def test_a_scheduler_with_zookeeper_loads_neither_sqlite_nor_rich() -> None:
    code = (
        "import nimbus.bootstrap, nimbus.bootstrap.scheduler, sys\n"
        "print([name for name in sys.modules if name == 'rich' or 'sqlite' in name])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == "[]"


def test_a_daemon_loads_the_settings_of_a_worker_only_if_it_has_one() -> None:
    code = (
        "import nimbus.bootstrap.processes, sys\nprint({'nimbus.worker.settings', 'psutil'} & {*sys.modules})"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == "set()"
