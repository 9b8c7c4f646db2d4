"""Commands about runs, with the leader killed (SIGKILL) right after each was submitted.

In memory, at each step of a leader, for all types of commands: `tests/nimbus/property/test_command_kills.py`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nimbus.chaos.cluster import NAME, Cluster, cluster, moment, number_of, until
from tests.thorough import thorough

pytestmark = [pytest.mark.chaos, thorough, pytest.mark.timeout(900)]

LATEST_S = 0.05
"""Delay after the submission. A leader decides in milliseconds, so some kills come after the decision."""
RUN, AGAIN = "commanded", "commanded-again"


def test_commands_are_done_once_when_the_leader_is_killed_after_each(tmp_path: Path) -> None:
    gates = tmp_path / "gates"  # they stay closed, so that the runs stay live
    gates.mkdir()
    rng = random.Random(20)
    with cluster(tmp_path / "stack", workers=1) as chaos:
        wish = {"journal": str(chaos.journal), "scale": 1.0, "gates": str(gates)}
        _killed(chaos, rng, "/runs", {"pipeline": NAME, "run_id": RUN, "parameters": wish})
        _killed(chaos, rng, f"/runs/{RUN}/pause", {})
        assert chaos.run(RUN)["paused"]["by"]
        _killed(chaos, rng, f"/runs/{RUN}/tasks/finish/mark", {"state": "skipped", "reason": "test"})
        assert _task(chaos, RUN, "finish")["settled"]["reason"] == "test"
        _killed(chaos, rng, f"/runs/{RUN}/resume", {})
        assert chaos.run(RUN)["paused"] is None
        _killed(chaos, rng, f"/runs/{RUN}/stop", {"reason": "test"})
        assert chaos.finished(RUN, 120)["state"] == "stopped"
        _killed(chaos, rng, f"/runs/{RUN}/rerun", {"scope": "failed", "run_id": AGAIN})
        assert chaos.run(AGAIN)["rerun_of"] == RUN
        _killed(chaos, rng, f"/runs/{AGAIN}/stop", {"reason": "test"})
        chaos.finished(AGAIN, 120)

        log = chaos.log()
        for run in (RUN, AGAIN):
            created = sum(
                operation.kind == "create" and operation.path.endswith(f"/runs/{run}")
                for transaction in log
                if transaction.is_committed
                for operation in transaction.operations
            )
            assert created == 1
        assert [str(each) for each in chaos.ledger().violations] == []


def _killed(chaos: Cluster, rng: random.Random, path: str, body: Mapping[str, Any]) -> None:
    """Submit a command, kill the leader, and wait until the next one has decided."""
    chaos.whole()
    leader = chaos.leader()
    urls = chaos.stack.addresses.schedulers
    other = next(url for number, url in enumerate(urls, 1) if number != number_of(leader))
    submitted = chaos.http.post(f"{other}/api/v1{path}", json=body or None)
    assert submitted.status_code == 202, submitted.text
    moment(rng.uniform(0, LATEST_S))
    chaos.kill_scheduler(number_of(leader))
    key = submitted.json()["command_id"]

    def decided() -> bool:
        answer = chaos.ask(f"/commands/{key}")
        assert answer["status"] != "refused", answer
        return bool(answer["status"] == "accepted")

    chaos.leader(above=leader["epoch"])
    until(f"the decision about {path}", 120, decided)
    chaos.start_scheduler(number_of(leader))


def _task(chaos: Cluster, run: str, task: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = chaos.run(run)["tasks"]
    return next(each for each in found if each["name"] == task)
