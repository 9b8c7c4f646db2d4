"""`nimbus up` as a real process: a cluster that answers, and that has ended after SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.domain.cluster.schema import NEWEST_SCHEMA

HINT = "nimbus run start hello --watch"


def test_up_serves_until_sigterm_and_leaves_data_only(
    tmp_path: Path, java_home: Path, eventually: Callable[..., None]
) -> None:
    client = tmp_path / ".nimbus" / "client.json"
    said = tmp_path / "up.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nimbus.cli.main", "up", "--schedulers", "1"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            eventually(
                lambda: client.exists() or process.poll() is not None, within_s=120, what="the cluster is up"
            )
            assert client.exists(), said.read_text()
            servers = json.loads(client.read_text())["servers"]
            asked = [word for server in servers for word in ("--server", server)]

            def leads() -> bool:
                return CliRunner().invoke(cli, ["cluster", "leader", *asked]).exit_code == 0

            def schema() -> tuple[object, ...]:
                said = CliRunner().invoke(cli, ["cluster", "status", "-o", "json", *asked]).stdout
                status = json.loads(said or "{}")
                return tuple(
                    status.get(key) for key in ("workers", "cluster_schema", "newest_schema", "older")
                )

            eventually(leads, within_s=60, what="a scheduler leads")
            newest = (1, NEWEST_SCHEMA, NEWEST_SCHEMA, [])
            eventually(
                lambda: schema() == newest, what="a new cluster is of the newest schema, as everybody is"
            )
            # The cluster can be found before all of this is printed. Another test ends it earlier.
            eventually(lambda: HINT in said.read_text(), what="it says what to try")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    # Opened again, because a seek in our own handle would also move the position of the process.
    assert said.read_text().rstrip().endswith("stopped")
    assert not client.exists()
    assert (tmp_path / ".nimbus" / "s3").is_dir()


def test_a_second_stack_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    from nimbus.localstack.folder import FolderLock

    lock = FolderLock((tmp_path / "stack").absolute())
    lock.acquire()
    client = tmp_path / "stack" / "client.json"
    client.write_text("of the first one")
    try:
        result = CliRunner().invoke(cli, ["up", "--dir", str(tmp_path / "stack")])
    finally:
        lock.release()

    assert result.exit_code == 4
    assert "already runs" in result.stderr
    assert "stopped" not in result.stderr
    assert client.read_text() == "of the first one"
