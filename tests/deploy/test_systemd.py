"""The units of `deploy/systemd` under a real systemd: their restarts, their watchdog, their limits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.debian import Machine, booted, exposure, installed, missing_tools, until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(missing_tools()), reason=missing_tools()),
    pytest.mark.timeout(1800),
]
_PIPELINE = """\
schema: 1
name: slow
description: Runs longer than the restart of its worker takes.
files: ["tasks/*.py"]
tasks:
  count: {type: python, script: tasks/count.py}
"""
_URL = "http://127.0.0.1:8711"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = installed(tmp_path_factory.mktemp("systemd"))
    tasks = root / "srv/slow/tasks"
    tasks.mkdir(parents=True)
    (root / "srv/slow/pipeline.yaml").write_text(_PIPELINE)
    (tasks / "count.py").write_text("import time\nfor second in range(15):\n    time.sleep(1)\n")
    return root


@pytest.fixture
def machine(root: Path, services: dict[str, object]) -> Iterator[Machine]:
    config = {
        **services,
        "cluster": {"root": "/systemd"},
        "scheduler": {"id": "sd-1", "host": "127.0.0.1", "port": 8711, "state_dir": "/var/lib/nimbus"},
        "worker": {"embedded": False, "id": "w-1", "slots": 2, "data": "/var/lib/nimbus/data"},
    }
    with booted(root) as machine:
        file = root / "etc/nimbus/nimbus.yaml"
        file.write_text(yaml.safe_dump(config))
        machine.run("chown", "root:nimbus", "/etc/nimbus/nimbus.yaml")
        machine.run("chmod", "640", "/etc/nimbus/nimbus.yaml")
        machine.run("systemctl", "start", "nimbus-scheduler", "nimbus-worker")
        _nimbus(
            machine, "pipeline", "publish", "/srv/slow", "--activate", "--config", "/etc/nimbus/nimbus.yaml"
        )
        yield machine


@pytest.mark.parametrize(("unit", "at_most"), [("scheduler", 2.5), ("worker", 3.0), ("backup", 2.5)])
def test_units_are_closed(root: Path, unit: str, at_most: float) -> None:
    assert exposure(root, f"nimbus-{unit}.service") <= at_most


def test_units_restart_are_watched_and_make_backups(machine: Machine, root: Path) -> None:
    run = _nimbus(machine, "run", "start", "slow").strip()
    until("the attempt runs", lambda: _run(machine, run)["tasks"][0]["state"] == "running")
    machine.run("systemctl", "restart", "nimbus-worker", "nimbus-scheduler")
    until("the run ends", lambda: _run(machine, run)["state"] == "succeeded")
    assert len(_run(machine, run)["tasks"][0]["attempts"]) == 1, "the restart ended the attempt"

    standing_still = machine.state("nimbus-scheduler", "MainPID")
    machine.run("kill", "-STOP", standing_still)
    until("systemd starts it again", lambda: machine.state("nimbus-scheduler", "NRestarts") == "1", 150)
    until("it is ready", lambda: machine.state("nimbus-scheduler", "ActiveState") == "active")
    assert machine.state("nimbus-scheduler", "MainPID") != standing_still

    machine.run("systemctl", "start", "nimbus-backup")
    (backup,) = (root / "var/backups/nimbus").glob("*.zip")
    assert backup.stat().st_mode & 0o777 == 0o600


def _nimbus(machine: Machine, *command: str) -> str:
    return machine.run("env", f"NIMBUS_SERVER={_URL}", "/opt/nimbus/bin/nimbus", *command)


def _run(machine: Machine, run: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(_nimbus(machine, "run", "show", run, "-o", "json"))
    return shown
