"""A single scheduler without ZooKeeper is killed during runs: they continue, and no task runs twice.

NIMBUS_CHAOS_ROUNDS: number of kills. NIMBUS_CHAOS_SEED: as printed, to kill at the same moments.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.folder import tagged_processes
from nimbus.localstack.ports import free_port
from nimbus.localstack.stack import LocalStack
from tests.nimbus.chaos.cluster import NAME, PIPELINE, Cluster, moment
from tests.nimbus.chaos.journal import read_journal
from tests.report import number_from, say
from tests.thorough import thorough

ROUNDS = number_from("NIMBUS_CHAOS_ROUNDS", 1)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
RUN_BOUND_S = 240.0
TASKS = {"start", "short", "middle", "long", "join", "finish"}

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 240 * ROUNDS)]


def test_runs_of_a_single_scheduler_survive_its_kills_and_no_task_runs_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)
    say(capsys, [f"single: {ROUNDS} kills, NIMBUS_CHAOS_SEED={SEED}"])
    tuning = StackTuning(slots=3, attempt_patience=timedelta(seconds=2))
    with LocalStack(tmp_path, 1, single=True, tuning=tuning) as stack, httpx.Client(timeout=3) as http:
        chaos = Cluster(stack, http)
        chaos.whole()
        chaos.publish()
        epoch = chaos.leader()["epoch"]
        for number in range(ROUNDS):
            run = chaos.start_run(f"r{number}")
            moment(rng.uniform(0, 6))
            chaos.kill_scheduler(1)
            chaos.start_scheduler(1)
            after = chaos.leader(above=epoch)["epoch"]
            assert after > epoch
            epoch = after
            assert chaos.finished(run, RUN_BOUND_S)["state"] == "succeeded"
        assert not [each for each in tagged_processes(tmp_path) if "java" in each.command], (
            "no JVM for Python"
        )
        _second_scheduler_is_refused(stack)

        executions = chaos.executions()
    assert {each.run for each in executions} == {f"r{number}" for number in range(ROUNDS)}
    counted = Counter((each.run, each.task) for each in executions)
    assert set(counted.values()) == {1}
    assert {task for _, task in counted} == TASKS


def _second_scheduler_is_refused(stack: LocalStack) -> None:
    """A second scheduler on one store is refused before it touches anything."""
    other = {"NIMBUS__SCHEDULER__PORT": str(free_port())}
    refused = subprocess.run(
        [sys.executable, "-m", "nimbus.cli.main", "scheduler", "--config", str(stack.config_file(1))],
        env={**os.environ, **other},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert refused.returncode == 4
    assert "another process uses" in refused.stderr
    assert "Traceback" not in refused.stderr


@thorough
def test_a_run_goes_on_when_nimbus_up_is_killed_and_started_again(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    folder, journal = tmp_path / "stack", tmp_path / "journal.jsonl"
    up = [sys.executable, "-m", "nimbus.cli.main", "up", "--single", "--dir", str(folder)]

    def start() -> subprocess.Popen[bytes]:
        (folder / "client.json").unlink(missing_ok=True)
        with (tmp_path / "up.log").open("ab") as log:
            process = subprocess.Popen(up, stdout=log, stderr=subprocess.STDOUT)
        eventually((folder / "client.json").exists, within_s=120, what="it serves")
        return process

    def nimbus(*words: str) -> str:
        said = subprocess.run(
            [sys.executable, "-m", "nimbus.cli.main", *words],
            env={
                **os.environ,
                "NIMBUS_SERVER": json.loads((folder / "client.json").read_text())["servers"][0],
            },
            capture_output=True,
            text=True,
            timeout=RUN_BOUND_S,
            check=False,
        )
        assert said.returncode == 0, said.stderr + (tmp_path / "up.log").read_text()
        return said.stdout

    process = start()
    try:
        config = str(folder / "scheduler-1.yaml")
        nimbus("pipeline", "publish", str(PIPELINE), "--activate", "--config", config)
        nimbus("run", "start", NAME, "--run-id", "r", "--param", f"journal={journal}")
        eventually(lambda: journal.exists() and journal.stat().st_size > 0, within_s=60, what="a task runs")
        process.kill()
        process.wait()
        process = start()
        url = json.loads((folder / "client.json").read_text())["servers"][0]
        eventually(
            lambda: httpx.get(f"{url}/api/v1/runs/r", timeout=30).json()["state"] == "succeeded",
            within_s=RUN_BOUND_S,
            what="the run ends",
        )
        kept = json.loads(nimbus("artifacts", "gc", "--dry-run", "--config", config, "-o", "json"))
        assert len(kept["in_use"]) == 1, "the command line reads the store beside the scheduler"
    finally:
        process.terminate()
        assert process.wait(60) == 0
    executions = read_journal(journal.read_text().splitlines())
    assert Counter(each.task for each in executions) == Counter(TASKS)
