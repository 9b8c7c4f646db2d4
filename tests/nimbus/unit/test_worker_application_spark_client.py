"""Submission by Spark's own client: its arguments, and its end. The client is a script here."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import Submission
from nimbus.worker.application.spark_client import SparkClient
from tests.nimbus.worker_bench import eventually

SUBMISSION = Submission(
    name="nimbus-c-r.t.1",
    bootstrap_url="http://s1/attempt/v1/bootstrap.py",
    startup='{"token": "s3cr3t", "text": "a=b:c # ü 😀\\n $(A)"}',
    conf={"spark.executor.memory": "2g", "spark.kubernetes.namespace": "theirs", "spark.master": "local[1]"},
    environment={"A": "b c\\d"},
)
KEEPS = """\
for word in "$@"; do echo "word $word"; done > "$KEPT/words"
cp "$2" "$KEPT/properties"; stat -c '%a' "$2" "$PWD" > "$KEPT/modes"; env > "$KEPT/env"
echo "submitted"; exit {code}
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def client(root: Path, script: str, *, timeout_s: float = 30) -> SparkClient:
    """A client whose spark-submit is a script."""
    program = root / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return SparkClient(
        master="k8s://https://127.0.0.1:1",
        folder=root / "client",
        java_home=lambda: root / "java",
        variables="spark.kubernetes.driverEnv",
        environment={"SPARK_HOME": str(root / "spark"), "KEPT": str(root / "kept")},
        timeout=timedelta(seconds=timeout_s),
    )


def properties(file: Path) -> dict[str, str]:
    """Properties, parsed like in Java."""
    pairs = (line.split("=", 1) for line in file.read_text("ascii").splitlines())
    return {read(name): read(value) for name, value in pairs}


def read(spelled: str) -> str:
    units = spelled.encode().decode("unicode_escape")
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def test_client_gets_properties_in_a_file_that_nobody_else_can_read(tmp_path: Path, kept: Path) -> None:
    conf = {"spark.kubernetes.namespace": "ours"}

    result = client(tmp_path, KEEPS.format(code=0)).submit(SUBMISSION, conf, SUBMISSION.bootstrap_url)

    assert (result.exit_code, result.said) == (0, "submitted\n")
    assert properties(kept / "properties") == {
        "spark.executor.memory": "2g",
        "spark.kubernetes.namespace": "ours",
        "spark.app.name": SUBMISSION.name,
        "spark.master": "k8s://https://127.0.0.1:1",
        "spark.submit.deployMode": "cluster",
        "spark.kubernetes.driverEnv.A": "b c\\d",
        f"spark.kubernetes.driverEnv.{VARIABLE}": SUBMISSION.startup,
    }
    assert (kept / "modes").read_text().split() == ["600", "700"]
    assert not (tmp_path / "client").exists()


def test_no_secret_is_in_the_command_line_or_environment_of_the_client(tmp_path: Path, kept: Path) -> None:
    client(tmp_path, KEEPS.format(code=0)).submit(SUBMISSION, {}, SUBMISSION.bootstrap_url)

    words = (kept / "words").read_text()
    assert words.endswith(f"word --load-spark-defaults\nword {SUBMISSION.bootstrap_url}\n")
    assert "s3cr3t" not in words + (kept / "env").read_text()
    assert f"JAVA_HOME={tmp_path / 'java'}\n" in (kept / "env").read_text()


def test_client_that_fails_tells_its_exit_code_and_last_words(tmp_path: Path, kept: Path) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x; echo refused >&2; exit 3"

    result = client(tmp_path, script).submit(SUBMISSION, {}, "file")

    assert result.exit_code == 3
    assert result.said.endswith("xrefused\n")
    assert len(result.said) == 64 << 10


def test_client_is_killed_with_its_children_at_the_timeout(tmp_path: Path, kept: Path) -> None:
    script = 'echo begun; sleep 300 & echo $! > "$KEPT/child"; trap "" TERM; wait'

    result = client(tmp_path, script, timeout_s=1.0).submit(SUBMISSION, {}, "file")

    assert (result.exit_code, result.said) == (None, "begun\n")
    assert ended(int((kept / "child").read_text()))


WORKER = """
import sys
from pathlib import Path
from tests.nimbus.unit.test_worker_application_spark_client import SUBMISSION, client
client(Path(sys.argv[1]), 'echo $$ > "$KEPT/new"; mv "$KEPT/new" "$KEPT/pid"; exec sleep 300').submit(
    SUBMISSION, {}, "file"
)
"""


def test_client_dies_with_its_worker(tmp_path: Path, kept: Path) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], cwd=root) as worker:
        eventually((kept / "pid").exists, "the client runs")
        pid = int((kept / "pid").read_text())
        assert Path(f"/proc/{pid}/comm").exists()

        worker.send_signal(signal.SIGKILL)

    assert ended(pid)


def test_what_a_killed_worker_left_is_deleted_by_the_next_submission(tmp_path: Path, kept: Path) -> None:
    left = tmp_path / "client" / "spark.properties"
    left.parent.mkdir()
    left.write_text("old")
    left.chmod(stat.S_IRUSR)

    assert client(tmp_path, "exit 0").submit(SUBMISSION, {}, "file").exit_code == 0

    assert not left.exists()


def ended(pid: int) -> bool:
    """Whether a process has ended within ten seconds, reaped or not."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False
