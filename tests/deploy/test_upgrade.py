"""Two releases, each a wheel in its own environment: a cluster goes up, down and up again, with live runs.

As docs/upgrade.md says it: one daemon at a time, the leader last; a link names the environment that runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nimbus.client import Client
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.localstack import stack as local
from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.errors import ProcessStartError
from nimbus.localstack.process import ManagedProcess
from tests.deploy.debian import PROJECT

Eventually = Callable[..., None]

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]

OLD, NEW = "0.1.0", "0.2.0.dev0"
STARTS = 100
PIPELINE = """\
schema: 1
name: rolls
files: ["*.py"]
concurrency: {limit: 100}
defaults: {timeout: 5m}
tasks:
  first: {type: python, script: note.py, args: ["LEDGER", "4"]}
  second: {type: python, script: note.py, args: ["LEDGER", "0"], needs: [first]}
"""
NOTE = """\
import sys, time
from nimbus.task import context
found = context()
line = f"{found.run_id} {found.task} {found.attempt}\\n"
with open(sys.argv[1], "a") as ledger:
    ledger.write(line)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment for each release, named as the release."""
    folder = tmp_path_factory.mktemp("releases")
    tracked = subprocess.run(["git", "ls-files"], cwd=PROJECT, check=True, capture_output=True, text=True)
    files = [name for name in tracked.stdout.splitlines() if not name.startswith("tests/")]
    for version, schema in ((OLD, NEWEST_SCHEMA), (NEW, NEWEST_SCHEMA + 1)):
        source = folder / f"source-{version}"
        for name in files:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, source / name)
        _replace(source / "nimbus/__init__.py", '__version__ = "', f'__version__ = "{version}"\n#"')
        _replace(
            source / "nimbus/domain/cluster/schema.py", "NEWEST_SCHEMA = ", f"NEWEST_SCHEMA = {schema} #"
        )
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, source], check=True, timeout=300)
        place = folder / version
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
        packages = next(place.glob("lib/python*/site-packages"))
        # What both depend on, after this folder; .pth files in there do not count.
        (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
        wheel = next(folder.glob(f"*-{version}-*.whl"))
        into = ["--python", str(place / "bin/python"), "install", "--no-deps", "--no-index", str(wheel)]
        subprocess.run([*pip, *into], check=True, timeout=120)
    return folder


def _replace(file: Path, begin: str, by: str) -> None:
    text = file.read_text()
    assert text.count(f"\n{begin}") == 1, file
    file.write_text(text.replace(f"\n{begin}", f"\n{by}"))


class Cluster:
    """Three schedulers and two workers, whose release is the target of a link, and an operator."""

    def __init__(self, folder: Path, releases: Path) -> None:
        self._releases, self.folder = releases, folder
        self.ledger = folder / "ledger"
        self.stack = local.LocalStack(
            folder / "stack",
            3,
            workers=2,
            tuning=StackTuning(slots=4),
            command=lambda config: self.command("scheduler", config),
        )
        self.started: list[str] = []
        self.live: list[int] = []
        """Runs that were under way at each change."""

    def command(self, kind: str, config: Path) -> list[str]:
        """The command line of a daemon."""
        self.link(config.stem, OLD)
        return [str(self.folder / config.stem / "bin/nimbus"), kind, "--config", str(config)]

    @property
    def daemons(self) -> dict[str, ManagedProcess]:
        return {daemon.name: daemon for daemon in (*self.stack.workers, *self.stack.schedulers)}

    def connect(self) -> None:
        self.stack.wait_ready()
        self.client = Client(*self.stack.addresses.schedulers)

    def start(self, number: int) -> None:
        """Start runs. Each start must be accepted, also while a daemon or the leader is away."""
        for _ in range(number):
            run_id = f"r{len(self.started)}"
            self.client.start("rolls", run_id=run_id)
            self.started.append(run_id)

    def change(self, name: str, version: str) -> None:
        """Let a daemon run another release: stop, link, start. Runs are started all the time."""
        self.start(2)
        daemon = self.daemons[name]
        daemon.stop()
        self.start(1)
        self.live.append(len(self.client.runs(state="running")))
        self.link(name, version)
        daemon.spawn()
        daemon.wait_ready()
        self.start(2)

    def link(self, name: str, version: str) -> None:
        link = self.folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(self._releases / version)

    def roll(self, version: str, eventually: Eventually) -> None:
        """Change all daemons: workers, schedulers, the leader last."""
        leader = self.leader()
        for name in sorted(self.daemons, key=lambda one: (one == leader, one.startswith("scheduler"), one)):
            self.change(name, version)
        eventually(lambda: self.versions() == {version}, what=f"all daemons are of {version}")
        eventually(self.leader, what=f"a scheduler of {version} leads")

    def run(self, version: str, *words: object) -> None:
        """A command of the command line of a release."""
        command = [str(self._releases / version / "bin/nimbus"), *map(str, words)]
        subprocess.run([*command, "--config", str(self.stack.config_file(1))], check=True, timeout=120)

    def leader(self) -> str:
        found = self.client.leader()
        return "" if found is None else str(found["id"])

    def versions(self) -> set[str]:
        """What the registered daemons say; more than five while an old registration remains."""
        rows = self.client.get("/participants")["participants"] + self.client.get("/workers")["workers"]
        return {str(row["version"]).partition("+")[0] for row in rows if len(rows) == 5}

    def schema(self) -> int:
        return int(self.client.get("/status")["cluster_schema"])


@pytest.fixture
def cluster(tmp_path: Path, releases: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, releases)
    monkeypatch.setattr(local, "worker_command", lambda config: cluster.command("worker", config))
    with cluster.stack:
        cluster.connect()
        yield cluster
        cluster.client.close()


def test_cluster_goes_up_down_and_up_with_live_runs_and_an_old_scheduler_is_refused_after_the_raise(
    cluster: Cluster, tmp_path: Path, eventually: Eventually
) -> None:
    pipeline = tmp_path / "rolls"
    pipeline.mkdir()
    (pipeline / "pipeline.yaml").write_text(PIPELINE.replace("LEDGER", str(cluster.ledger)))
    (pipeline / "note.py").write_text(NOTE)
    server = cluster.stack.addresses.schedulers[0]
    cluster.run(OLD, "pipeline", "publish", pipeline, "--activate", "--server", server)
    eventually(lambda: cluster.versions() == {OLD}, what="all daemons are registered")

    for version in (NEW, OLD):
        cluster.roll(version, eventually)
        assert cluster.schema() == NEWEST_SCHEMA
    backup = tmp_path / "before.zip"
    cluster.run(OLD, "cluster", "export", backup, "--live")
    cluster.run(OLD, "cluster", "verify", backup)
    for number in (1, 2, 3):
        file = cluster.stack.config_file(number)
        settings: dict[str, Any] = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**settings, "leadership": {"raise_schema_after": "2s"}}))
    cluster.roll(NEW, eventually)
    eventually(lambda: cluster.schema() == NEWEST_SCHEMA + 1, what="the leader raises the schema")

    with pytest.raises(ProcessStartError, match="exit status 2 "):
        cluster.change("scheduler-3", OLD)
    said = (cluster.stack.folder / "scheduler-3/scheduler.log").read_text()
    assert f"/nimbus has schema {NEWEST_SCHEMA + 1}, and this release knows {NEWEST_SCHEMA}: a newer" in said
    cluster.change("scheduler-3", NEW)

    cluster.start(STARTS - len(cluster.started))
    ended = [cluster.client.wait(run, timeout_s=300) for run in cluster.started]
    executed = Counter(tuple(line.split()[:2]) for line in cluster.ledger.read_text().splitlines())
    assert len(ended) == STARTS
    assert len(cluster.live) == 3 * 5 + 2
    assert all(cluster.live)
    assert {run.id: run.reason for run in ended if run.state != "succeeded"} == {}
    assert executed == Counter((run, task) for run in cluster.started for task in ("first", "second"))

    for daemon in cluster.daemons.values():
        daemon.stop()
    cluster.run(OLD, "cluster", "destroy", "--yes-delete", "/nimbus")
    cluster.run(OLD, "cluster", "import", backup)
    scheduler = cluster.daemons["scheduler-1"]
    cluster.link("scheduler-1", OLD)
    scheduler.start()
    eventually(lambda: cluster.leader() == "scheduler-1", what="the older release leads again")
    assert cluster.schema() == NEWEST_SCHEMA
