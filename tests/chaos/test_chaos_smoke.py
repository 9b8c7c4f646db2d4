"""Runs in the middle of which a leader, a worker or a runner is killed, or a leader becomes a zombie.

NIMBUS_CHAOS_ROUNDS: how many. NIMBUS_CHAOS_SEED: as printed, to draw the same faults at the same moments.
"""

from __future__ import annotations

import random
import secrets
from datetime import datetime
from pathlib import Path

import pytest

from tests.chaos import toolkit
from tests.chaos.checker import check_run
from tests.chaos.cluster import Cluster, cluster
from tests.chaos.faults import SCALE, Fault, deck
from tests.chaos.report import Round, append, number_from, say, table

ROUNDS = number_from("NIMBUS_CHAOS_ROUNDS", 4)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
RUN_BOUND_S = 240.0
_TRIES = 5
"""A fault that comes after its run's end is drawn again."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180 + 240 * ROUNDS)]


def test_runs_survive_killed_leaders_zombies_and_killed_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)
    record = tmp_path / "chaos-rounds.jsonl"
    say(capsys, [f"chaos: {ROUNDS} rounds, NIMBUS_CHAOS_SEED={SEED}, record in {record}"])
    rounds: list[Round] = []
    with cluster(tmp_path / "stack", workers=2) as chaos:
        try:
            for number, fault in enumerate(deck(rng, ROUNDS), 1):
                rounds.append(_round(chaos, number, fault, rng))
                append(record, rounds[-1])
        finally:  # what was found until then counts, too, when something did not happen in time
            say(capsys, _summary(chaos, rounds))
        ledger, transactions = chaos.ledger(), chaos.log()
        # The conclusion rests on our reading of the log, so ZooKeeper's own tool must read the same.
        listed = toolkit.listed(chaos.log_folder)
    assert listed[: len(transactions)] == toolkit.entries(transactions)
    assert ledger.leader_writes > 6 * ROUNDS, "the log shows less than the rounds must have written"
    assert [str(each) for each in ledger.violations] == []
    assert {f"{each.number} {each.kind}": each.faults for each in rounds if each.faults} == {}


def _summary(chaos: Cluster, rounds: list[Round]) -> list[str]:
    ledger = chaos.ledger()
    return [
        *table(rounds),
        f"{ledger.leader_writes} writes of leaders in {len(ledger.raised)} epochs",
        f"zombie writes: {len(ledger.violations)} accepted, {ledger.fenced_off} refused by ZooKeeper",
        f"reigns that ended by a refused write: {chaos.logged('write_fenced')}",
    ]


def _round(chaos: Cluster, number: int, fault: Fault, rng: random.Random) -> Round:
    before = len(chaos.ledger().violations)
    for retry in range(_TRIES):
        run_id = chaos.start_run(f"round-{number}-{retry}", scale=SCALE)
        injected = fault(chaos, run_id, rng)
        run = chaos.finished(run_id, RUN_BOUND_S)
        chaos.whole()
        faults = check_run(run, chaos.executions(), chaos.ends())
        if injected is None and not faults:
            continue
        created, finished = (datetime.fromisoformat(run[key]) for key in ("created_at", "finished_at"))
        return Round(
            number=number,
            kind=injected.kind if injected else "none",
            target=injected.target if injected else "",
            run_id=run_id,
            run_s=(finished - created).total_seconds(),
            takeover_s=injected.takeover_s if injected else None,
            attempts=sum(len(task["attempts"]) for task in run["tasks"]),
            faults=faults,
            zombie_writes_accepted=len(chaos.ledger().violations) - before,
        )
    raise AssertionError(f"{fault.__name__} came too late {_TRIES} times")
