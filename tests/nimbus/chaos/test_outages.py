"""S3 or ZooKeeper is unavailable for some time during a run. Outages stop progress, not running tasks.

NIMBUS_OUTAGE_SECONDS: shortest duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbus.localstack.process import ManagedProcess
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.pool.folder import ExecutorFolder
from tests.nimbus.chaos.checker import check_run, check_undisturbed
from tests.nimbus.chaos.cluster import Cluster, cluster, moment, seconds_after, until
from tests.nimbus.chaos.journal import Execution
from tests.report import number_from, say

OUTAGE_S = number_from("NIMBUS_OUTAGE_SECONDS", 10)
RUN_BOUND_S = 3 * OUTAGE_S + 180
TASKS = ("short", "middle", "long")
"""They run when the outage begins. The first two end during it, the last one after it."""
DURING = {"short", "middle"}
RECOVERY_BOUND_S = 180.0
UNHURRIED = timedelta(seconds=10)
"""So long that a leader does not lose its session on a busy machine, and shorter than the outage."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600 + 4 * OUTAGE_S)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The progress of a run while a server was unavailable."""

    started: set[str]
    """Tasks that started during the outage."""
    ended: set[str]
    """Tasks that ended during the outage."""
    lasted_s: float
    back_at: float


def test_outages_of_s3_and_zookeeper_kill_no_task_and_the_runs_end_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(tmp_path / "stack", workers=2, session=UNHURRIED) as chaos:
        _s3_is_away_and_the_leader_keeps_leading(chaos, capsys)
        _zookeeper_is_away_and_a_leader_follows(chaos, capsys)


def _zookeeper_is_away_and_a_leader_follows(chaos: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    epoch = chaos.leader()["epoch"]
    run_id = _in_the_middle(chaos, "without-zookeeper")

    outage = _outage(chaos, run_id, chaos.stack.zookeeper, lambda seen: _ended(seen) >= DURING)
    leader = chaos.leader(above=epoch)  # the connection broke, so even the same scheduler has a new term
    led_s = seconds_after(outage.back_at, leader["recovered_at"])
    run = chaos.finished(run_id, RUN_BOUND_S)

    assert outage.ended >= DURING, "tasks ended while ZooKeeper was away"
    _check(chaos, run)
    chaos.whole()
    assert [str(each) for each in chaos.ledger().violations] == []
    say(
        capsys,
        [
            f"ZooKeeper killed for {outage.lasted_s:.0f} s: run {run['state']} in {_took_s(run):.1f} s",
            f"  tasks that ended meanwhile: {', '.join(sorted(outage.ended))}; attempts: {_attempts(run)}",
            f"  {leader['id']} leads {led_s:.1f} s after its return (epoch {epoch} -> {leader['epoch']})",
        ],
    )


def _s3_is_away_and_the_leader_keeps_leading(chaos: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = chaos.leader()
    run_id = _in_the_middle(chaos, "without-s3")

    # `join` needs both, so the leader starts it while S3 is unavailable.
    outage = _outage(
        chaos, run_id, chaos.stack.s3, lambda seen: _ended(seen) >= DURING and "join" in _started(seen)
    )
    run = chaos.finished(run_id, RUN_BOUND_S)

    assert outage.ended >= DURING
    assert "join" in outage.started
    _check(chaos, run)
    after = chaos.leader()
    assert (after["id"], after["epoch"]) == (before["id"], before["epoch"])
    until("all logs to be stored", RECOVERY_BOUND_S, lambda: _logs_are_stored(chaos, run))
    stored_s = time.time() - outage.back_at
    chaos.whole()
    say(
        capsys,
        [
            f"S3 killed for {outage.lasted_s:.0f} s: run {run['state']} in {_took_s(run):.1f} s",
            f"  tasks that ended meanwhile: {', '.join(sorted(outage.ended))}; attempts: {_attempts(run)}",
            f"  {after['id']} led throughout with epoch {after['epoch']}",
            f"  all logs were stored {stored_s:.1f} s after its return",
        ],
    )


def _in_the_middle(chaos: Cluster, run_id: str) -> str:
    """Start a run, and wait until its three long tasks run."""
    gates = _gates(chaos, run_id)
    gates.mkdir(parents=True)
    chaos.start_run(run_id, gates=gates)

    until("three tasks to compute", 120, lambda: set(TASKS) <= _started(_executions(chaos, run_id)))
    return run_id


def _gates(chaos: Cluster, run_id: str) -> Path:
    return chaos.stack.folder / "gates" / run_id


def _executions(chaos: Cluster, run_id: str) -> list[Execution]:
    return [each for each in chaos.executions() if each.run == run_id]


def _outage(
    chaos: Cluster, run_id: str, server: ManagedProcess, seen_enough: Callable[[list[Execution]], bool]
) -> Outage:
    """Kill a server, let some tasks end, start the server again, let the last task end."""
    before, began_s = _executions(chaos, run_id), time.monotonic()
    server.kill()
    for task in DURING:
        (_gates(chaos, run_id) / task).touch()
    moment(OUTAGE_S)
    until("what goes on without it", RECOVERY_BOUND_S, lambda: seen_enough(_executions(chaos, run_id)))
    after = _executions(chaos, run_id)
    server.start()
    back_at, lasted_s = time.time(), time.monotonic() - began_s
    (_gates(chaos, run_id) / "long").touch()
    return Outage(
        started=_started(after) - _started(before),
        ended=_ended(after) - _ended(before),
        lasted_s=lasted_s,
        back_at=back_at,
    )


def _started(executions: list[Execution]) -> set[str]:
    return {each.task for each in executions}


def _ended(executions: list[Execution]) -> set[str]:
    return {each.task for each in executions if each.ended}


def _check(chaos: Cluster, run: dict[str, Any]) -> None:
    executions = chaos.executions()
    assert check_run(run, executions, chaos.ends()) == []
    assert check_undisturbed(run, executions) == []
    assert _bad_attempts(run) == []
    assert {task["name"]: len(task["attempts"]) for task in run["tasks"]} == dict.fromkeys(_names(run), 1)
    assert {end["written_by"] for end in chaos.ends().values()} == {"runner", "executor"}
    until("all records to be delivered", RECOVERY_BOUND_S, lambda: _all_delivered(chaos))


def _bad_attempts(run: dict[str, Any]) -> list[str]:
    """Attempts that did not succeed, each with its reason."""
    return [
        f"{task['name']}.{each['number']} on {each['worker']}: {each['outcome']}: {each['reason']}"
        for task in run["tasks"]
        for each in task["attempts"]
        if each["outcome"] != "succeeded"
    ]


def _names(run: dict[str, Any]) -> list[str]:
    return [task["name"] for task in run["tasks"]]


def _all_delivered(chaos: Cluster) -> bool:
    """Whether runners have recorded the delivery in their folders, and executors have removed theirs."""
    works = [chaos.stack.folder / worker.name / "worker" for worker in chaos.stack.workers]
    isolated = [folder for work in works for folder in AttemptFolder.all_in(work)]
    pooled = [task for work in works for executor in ExecutorFolder.all_in(work) for task in executor.tasks()]
    return bool(isolated) and all(folder.is_delivered for folder in isolated) and not pooled


def _logs_are_stored(chaos: Cluster, run: dict[str, Any]) -> bool:
    """Each task's log is readable through the API, up to its last line."""
    url = chaos.stack.addresses.schedulers[0]
    try:
        logs = [httpx.get(f"{url}/api/v1/runs/{run['id']}/tasks/{name}/log") for name in _names(run)]
    except httpx.TransportError:
        return False
    return all(log.is_success and "worked for" in log.text for log in logs)


def _took_s(run: dict[str, Any]) -> float:
    created, finished = (datetime.fromisoformat(run[key]) for key in ("created_at", "finished_at"))
    return (finished - created).total_seconds()


def _attempts(run: dict[str, Any]) -> int:
    return sum(len(task["attempts"]) for task in run["tasks"])
