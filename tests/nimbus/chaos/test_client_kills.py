"""Starts by the client for Python while leaders are killed (SIGKILL): each run is created once.

On a real ZooKeeper, with three schedulers. The client is given one address: that of the first victim.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nimbus.client import Client
from tests.nimbus.chaos.cluster import cluster, number_of, until
from tests.report import say
from tests.thorough import thorough

pytestmark = pytest.mark.chaos

THREADS = 4
DEFINITION = 'schema: 1\nname: asked\ntasks:\n  ask: {type: approval, prompt: "is it good?"}\n'
"""Its runs need no worker."""


@pytest.mark.parametrize(
    ("starts", "kills"),
    [
        pytest.param(50, 1, marks=pytest.mark.timeout(300)),
        pytest.param(1_000, 5, marks=[thorough, pytest.mark.timeout(1_800)]),
    ],
)
def test_each_start_of_the_client_is_one_run_though_leaders_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], starts: int, kills: int
) -> None:
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(DEFINITION)
    with cluster(tmp_path / "stack") as chaos:
        chaos.publish(folder)
        leader = chaos.leader()
        began = time.monotonic()
        with (
            Client(chaos.stack.addresses.schedulers[number_of(leader) - 1], patience_s=120) as client,
            ThreadPoolExecutor(THREADS) as threads,
        ):

            def start(number: int) -> str:
                return client.start("asked", {}, logical_date=f"2026-01-01T00:00:00.{number:06}Z").id

            asked = [threads.submit(start, number) for number in range(starts)]
            for kill in range(1, kills + 1):
                asked[kill * starts // (kills + 1)].result(timeout=300)
                chaos.kill_scheduler(number_of(leader))
                leader, killed = chaos.leader(above=leader["epoch"]), leader
                chaos.start_scheduler(number_of(killed))
            made = [one.result(timeout=600) for one in asked]
            took_s = time.monotonic() - began
            listed = until("all runs", 120, lambda: _listed(client, starts))
        created = Counter(
            operation.path.rpartition("/")[2]
            for transaction in chaos.log()
            if transaction.is_committed
            for operation in transaction.operations
            if operation.kind == "create" and operation.path.rpartition("/")[0].endswith("/runs")
        )

        assert len(set(made)) == starts
        assert sorted(listed) == sorted(made)
        assert {run: created[run] for run in made} == dict.fromkeys(made, 1)
        assert sum(created.values()) == starts
        assert [str(each) for each in chaos.ledger().violations] == []
    say(capsys, [f"{starts} starts by {THREADS} threads in {took_s:.0f} s, {kills} leaders killed"])


def _listed(client: Client, starts: int) -> list[str] | None:
    """The ids of all runs; None: some are still pending."""
    found = [run.id for run in client.runs(limit=2 * starts)]
    return found if len(found) >= starts else None
