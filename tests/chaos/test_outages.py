"""S3 or ZooKeeper is gone for a while in the middle of a run. Outages stop progress, not work.

NIMBUS_OUTAGE_SECONDS: for how long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbus.localstack.process import ManagedProcess
from nimbus.worker.attempt_folder import AttemptFolder
from tests.chaos.checker import check_run, check_undisturbed
from tests.chaos.cluster import Cluster, cluster, moment, seconds_after, until
from tests.chaos.journal import Execution
from tests.chaos.report import number_from, say

OUTAGE_S = number_from("NIMBUS_OUTAGE_SECONDS", 10)
RUN_BOUND_S = 3 * OUTAGE_S + 90
TASKS = ("short", "middle", "long")
"""They compute when the outage begins: for a third of it, two thirds of it, and beyond its end."""
SCALE = 0.7 * OUTAGE_S
RECOVERY_BOUND_S = 40.0

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180 + 4 * OUTAGE_S)]


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "stack", workers=2) as made:
        yield made


def test_zookeeper_outage_kills_no_task_and_the_run_ends_by_itself(
    chaos: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch = chaos.leader()["epoch"]
    run_id = _in_the_middle(chaos)
    server = chaos.stack.zookeeper

    _, ended_during, back_at = _outage(chaos, server)
    leader = chaos.leader(above=epoch)  # the link broke, so even the same scheduler leads anew
    led_s = seconds_after(back_at, leader["recovered_at"])
    run = chaos.finished(run_id, RUN_BOUND_S)

    assert "short" in ended_during, "a task ended while ZooKeeper was away"
    _check(chaos, run)
    chaos.whole()
    assert [str(each) for each in chaos.ledger().violations] == []
    say(
        capsys,
        [
            f"ZooKeeper killed for {OUTAGE_S} s: run {run['state']} in {_took_s(run):.1f} s",
            f"  tasks that ended meanwhile: {', '.join(sorted(ended_during))}; attempts: {_attempts(run)}",
            f"  {leader['id']} leads {led_s:.1f} s after its return (epoch {epoch} -> {leader['epoch']})",
        ],
    )


def test_s3_outage_kills_no_task_and_the_leader_keeps_leading(
    chaos: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = chaos.leader()
    run_id = _in_the_middle(chaos)

    started_during, ended_during, back_at = _outage(chaos, chaos.stack.s3)
    run = chaos.finished(run_id, RUN_BOUND_S)

    # `join` needs both, so it was started, by the leader, while S3 was away.
    assert {"short", "middle"} <= set(ended_during)
    assert "join" in started_during
    _check(chaos, run)
    after = chaos.leader()
    assert (after["id"], after["epoch"]) == (before["id"], before["epoch"])
    until("all logs to be stored", RECOVERY_BOUND_S, lambda: _logs_are_stored(chaos, run))
    stored_s = time.time() - back_at
    chaos.whole()
    say(
        capsys,
        [
            f"S3 killed for {OUTAGE_S} s: run {run['state']} in {_took_s(run):.1f} s",
            f"  tasks that ended meanwhile: {', '.join(sorted(ended_during))}; attempts: {_attempts(run)}",
            f"  {after['id']} led throughout with epoch {after['epoch']}",
            f"  all logs were stored {stored_s:.1f} s after its return",
        ],
    )


def _in_the_middle(chaos: Cluster) -> str:
    """Start a run and wait until its three long tasks compute."""
    run_id = chaos.start_run("outage", scale=SCALE)

    until("three tasks to compute", 60, lambda: set(TASKS) <= _started(chaos.executions()))
    return run_id


def _outage(chaos: Cluster, server: ManagedProcess) -> tuple[set[str], set[str], float]:
    """Kill a server, wait, start it again. Tasks that started, that ended meanwhile; when it was back."""
    before = chaos.executions()
    server.kill()
    moment(OUTAGE_S)
    after = chaos.executions()
    server.start()
    assert "long" not in _ended(after), "no task computed from the beginning of the outage to its end"
    return _started(after) - _started(before), _ended(after) - _ended(before), time.time()


def _started(executions: list[Execution]) -> set[str]:
    return {each.task for each in executions}


def _ended(executions: list[Execution]) -> set[str]:
    return {each.task for each in executions if each.ended}


def _check(chaos: Cluster, run: dict[str, Any]) -> None:
    executions = chaos.executions()
    assert check_run(run, executions, chaos.ends()) == []
    assert check_undisturbed(run, executions) == []
    assert {task["name"]: len(task["attempts"]) for task in run["tasks"]} == dict.fromkeys(_names(run), 1)
    assert {end["written_by"] for end in chaos.ends().values()} == {"runner"}
    until("all runners' records to be delivered", RECOVERY_BOUND_S, lambda: _all_delivered(chaos, run))


def _names(run: dict[str, Any]) -> list[str]:
    return [task["name"] for task in run["tasks"]]


def _all_delivered(chaos: Cluster, run: dict[str, Any]) -> bool:
    works = [chaos.stack.folder / worker.name / "worker" for worker in chaos.stack.workers]
    folders = [folder for work in works for folder in AttemptFolder.all_in(work)]
    return len(folders) == len(run["tasks"]) and all(folder.is_delivered for folder in folders)


def _logs_are_stored(chaos: Cluster, run: dict[str, Any]) -> bool:
    """Each task's log is readable through the API, up to its last line."""
    url = chaos.stack.addresses.schedulers[0]
    logs = [httpx.get(f"{url}/api/v1/runs/{run['id']}/tasks/{name}/log", timeout=5) for name in _names(run)]
    return all(log.is_success and "worked for" in log.text for log in logs)


def _took_s(run: dict[str, Any]) -> float:
    created, finished = (datetime.fromisoformat(run[key]) for key in ("created_at", "finished_at"))
    return (finished - created).total_seconds()


def _attempts(run: dict[str, Any]) -> int:
    return sum(len(task["attempts"]) for task in run["tasks"])
