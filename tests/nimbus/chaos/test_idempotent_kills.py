"""One start, sent a hundred times with its `Idempotency-Key`, while leaders are killed (SIGKILL).

On a real ZooKeeper, with three schedulers. Laws of single steps:
`tests/nimbus/contract/test_cluster_views.py`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nimbus.chaos.cluster import NAME, Cluster, cluster, number_of, until
from tests.thorough import thorough

pytestmark = [pytest.mark.chaos, thorough, pytest.mark.timeout(900)]

TIMES, KILL_EVERY = 100, 12
KEY = {"Idempotency-Key": "one-start"}


def test_a_start_sent_a_hundred_times_over_killed_leaders_starts_one_run(tmp_path: Path) -> None:
    rng = random.Random(14)
    with cluster(tmp_path / "stack", workers=1) as chaos:
        body = {"pipeline": NAME, "parameters": {"journal": str(chaos.journal), "scale": 0.1}}
        answers, killed = list[dict[str, Any]](), 0
        while len(answers) < TIMES:
            if len(answers) % KILL_EVERY == KILL_EVERY - 1 and killed <= len(answers) // KILL_EVERY:
                _kill_leader(chaos, body, rng)
                killed += 1
            if (answer := _sent(chaos, body, rng)) is not None:
                answers.append(answer)

        (run,) = {answer["run_id"] for answer in answers}
        assert len({answer["command_id"] for answer in answers}) == 1
        assert chaos.finished(run, 300)["state"] == "succeeded"
        assert [row["id"] for row in chaos.ask(f"/runs?pipeline={NAME}")["runs"]] == [run]
        assert killed >= TIMES // KILL_EVERY
        assert [str(each) for each in chaos.ledger().violations] == []


def _sent(chaos: Cluster, body: dict[str, Any], rng: random.Random) -> dict[str, Any] | None:
    """The answer of a scheduler; None: there was none that counts."""
    url = rng.choice(chaos.stack.addresses.schedulers)
    try:
        answer = chaos.http.post(f"{url}/api/v1/runs", json=body, headers=KEY)
    except httpx.TransportError:
        return None
    if answer.status_code == 503:
        return None
    assert answer.status_code in (200, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def _kill_leader(chaos: Cluster, body: dict[str, Any], rng: random.Random) -> None:
    """Send the start, kill the leader at once, and wait for the next one."""
    chaos.whole()
    leader = chaos.leader()
    _sent(chaos, body, rng)
    chaos.kill_scheduler(number_of(leader))
    chaos.leader(above=leader["epoch"])
    chaos.start_scheduler(number_of(leader))
    until("a scheduler leads", 120, lambda: chaos.ask("/leader")["leader"] is not None)
