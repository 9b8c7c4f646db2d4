"""A process of the cluster is killed or stopped during a run, in every mode of tasks.

NIMBUS_CHAOS_ROUNDS: number of runs; in every third one, the fault hits Spark tasks.
NIMBUS_CHAOS_SEED: as printed, to draw the same faults at the same moments.
"""

from __future__ import annotations

import random
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.nimbus.chaos import toolkit
from tests.nimbus.chaos.checker import check_run, check_versions
from tests.nimbus.chaos.cluster import (
    FINAL,
    NAME,
    READING_NAME,
    READING_PIPELINE,
    SPARK_NAME,
    SPARK_PIPELINE,
    Cluster,
    NotInTimeError,
    cluster,
    until,
)
from tests.nimbus.chaos.faults import SCALE, Kind
from tests.nimbus.chaos.spark_faults import SILENT, deck
from tests.report import Round, append, number_from, say, table

ROUNDS = number_from("NIMBUS_CHAOS_ROUNDS", 1)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
RUN_BOUND_S = 240.0
GONE_BOUND_S = 120.0
"""Longest time until the last process ends: after the end of a run, and after the end of all workers."""
_TRIES = 5
"""If a fault comes after the end of its run, another one is drawn."""

DATASETS = {"chaos_worked": {"finish": "finish"}, "chaos_middle": {"join": "middle"}}
"""What the chaos pipeline publishes: for each task that publishes, the task whose output it publishes."""

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(180 + 240 * ROUNDS)]


def test_runs_survive_killed_leaders_zombies_and_killed_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)
    record = tmp_path / "chaos-rounds.jsonl"
    say(capsys, [f"chaos: {ROUNDS} rounds, NIMBUS_CHAOS_SEED={SEED}, record in {record}"])
    rounds: list[Round] = []
    with cluster(tmp_path / "stack", workers=2) as chaos:
        chaos.publish(SPARK_PIPELINE)
        chaos.publish(READING_PIPELINE)
        try:
            for number, kind in enumerate(deck(rng, ROUNDS), 1):
                rounds.append(_round(chaos, number, kind, rng))
                append(record, rounds[-1])
        finally:  # earlier findings count, even if an event did not happen in time
            say(capsys, _summary(chaos, rounds))
        versions = _faults_of_versions(chaos) + _faults_of_readers(chaos)
        ledger, transactions = chaos.ledger(), chaos.log()
        # The result depends on our reader of the log, so ZooKeeper's own tool must read the same.
        listed = toolkit.listed(chaos.log_folder)
        chaos.stop_daemons()
        until("all processes to end", GONE_BOUND_S, lambda: chaos.stack.leftovers() == [])
    assert listed[: len(transactions)] == toolkit.entries(transactions)
    assert ledger.leader_writes > 6 * ROUNDS, "the log shows less than the rounds must have written"
    assert [str(each) for each in ledger.violations] == []
    assert versions == []
    assert {f"{each.number} {each.kind}": each.faults for each in rounds if each.faults} == {}


def _summary(chaos: Cluster, rounds: list[Round]) -> list[str]:
    ledger = chaos.ledger()
    return [
        *table(rounds),
        f"{ledger.leader_writes} writes of leaders in {len(ledger.raised)} epochs",
        f"zombie writes: {len(ledger.violations)} accepted, {ledger.fenced_off} refused by ZooKeeper",
        f"terms that ended by a refused write: {chaos.logged('write_fenced')}",
        f"JVMs that ended: {chaos.logged('jvm_ended')}",
        f"Spark Connect servers started: {chaos.logged('connect_server_started')}",
    ]


def _round(chaos: Cluster, number: int, kind: Kind, rng: random.Random) -> Round:
    before = len(chaos.ledger().violations)
    is_spark = kind.pipeline == SPARK_NAME
    for retry in range(_TRIES):
        run_id = f"round-{number}-{retry}"
        if not kind.starts_run:
            chaos.start_run(run_id, pipeline=kind.pipeline, scale=SCALE)
        injected = kind.fault(chaos, run_id, rng)
        run = chaos.finished(run_id, RUN_BOUND_S)
        chaos.whole()
        faults = check_run(run, chaos.executions(), chaos.ends(), silent=SILENT if is_spark else ())
        faults += _left_behind(chaos, run_id)
        if injected is None and not faults:
            continue
        created, finished = (datetime.fromisoformat(run[key]) for key in ("created_at", "finished_at"))
        return Round(
            number=number,
            kind=("Spark: " if is_spark else "") + (injected.kind if injected else "none"),
            target=injected.target if injected else "",
            run_id=run_id,
            run_s=(finished - created).total_seconds(),
            takeover_s=injected.takeover_s if injected else None,
            repeats=sum(len(task["attempts"]) - 1 for task in run["tasks"]),
            faults=faults,
            zombie_writes_accepted=len(chaos.ledger().violations) - before,
        )
    raise AssertionError(f"{kind} came too late {_TRIES} times")


def _faults_of_versions(chaos: Cluster) -> list[str]:
    """Faults of the datasets that all runs have published."""
    runs = _runs(chaos, NAME)
    assert runs
    faults = []
    for dataset, published in DATASETS.items():
        faults += check_versions(_versions(chaos, dataset), published, runs)
    return faults


def _faults_of_readers(chaos: Cluster) -> list[str]:
    """Faults of the runs that these versions have started: the last one must have read the newest."""
    newest = {
        name: {version["partition"]: version for version in reversed(_versions(chaos, f"chaos_{name}"))}
        for name in ("worked", "middle")
    }
    wanted = {name: sorted(one["run"] for one in found.values()) for name, found in newest.items()}
    read: list[object] = []

    def look() -> bool:
        runs = _runs(chaos, READING_NAME)
        read[:] = [chaos.ask(f"/runs/{run['id']}/results")["results"].get("read") for run in runs]
        return all(run["state"] in FINAL for run in runs) and wanted in read

    try:
        until("a run that has read the newest versions", RUN_BOUND_S, look)
    except NotInTimeError as exc:
        return [f"{exc}: {wanted}, but {read}"]
    runs, changes = _runs(chaos, READING_NAME), 2 * len(wanted["worked"])
    return [f"{run['id']} is {run['state']}" for run in runs if run["state"] != "succeeded"] + [
        f"{len(runs)} runs were started by {changes} changes" for _ in range(len(runs) > changes)
    ]


def _runs(chaos: Cluster, pipeline: str) -> list[dict[str, Any]]:
    found = chaos.ask(f"/runs?pipeline={pipeline}&limit=500")["runs"]
    return [chaos.run(run["id"]) for run in found]


def _versions(chaos: Cluster, dataset: str) -> list[dict[str, Any]]:
    found = chaos.ask(f"/datasets/{dataset}/versions?limit=1000")
    assert found["complete"]
    versions: list[dict[str, Any]] = found["versions"]
    return versions


def _left_behind(chaos: Cluster, run_id: str) -> list[str]:
    """Processes that do not end after their run."""
    try:
        until("the end of its processes", GONE_BOUND_S, lambda: not chaos.left_behind(run_id))
    except NotInTimeError:
        return [f"left behind: {told}" for told in chaos.left_behind(run_id)]
    return []
