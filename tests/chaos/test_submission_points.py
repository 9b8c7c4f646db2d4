"""Submissions to a cluster, stopped at eight points, where a scheduler or the worker is killed.

NIMBUS_POINT_ROUNDS: rounds for each point and victim.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.chaos.report import number_from, say
from tests.chaos.submission_stage import (
    SCHEDULER,
    WORKER,
    Done,
    FakeStandalone,
    PointCluster,
    RealStandalone,
    Stage,
    stage,
)
from tests.thorough import thorough

ROUNDS = number_from("NIMBUS_POINT_ROUNDS", 1)
pytestmark = [thorough, pytest.mark.chaos, pytest.mark.timeout(600 + ROUNDS * 8 * 300)]


def made(kind: str, root: Path) -> PointCluster:
    return FakeStandalone(root) if kind == "fake" else RealStandalone()


@pytest.mark.parametrize("victim", [SCHEDULER, WORKER])
@pytest.mark.parametrize("kind", ["fake", pytest.param("standalone", marks=pytest.mark.spark)])
def test_one_application_runs_user_code_wherever_a_submission_is_cut(
    tmp_path: Path, java_home: Path, capsys: pytest.CaptureFixture[str], kind: str, victim: str
) -> None:
    done: list[Done] = []
    cluster = made(kind, tmp_path / "cluster")
    with stage(tmp_path, cluster) as on:
        try:
            for number in range(ROUNDS):
                for point in cluster.points:
                    run = f"{point.name.replace(' ', '-').lower()}-{number}"
                    done.append(on.play(point, victim, run))
        finally:
            say(capsys, _table(done))
        _check_all(on, done)


def _check_all(on: Stage, done: list[Done]) -> None:
    """No driver that came late has run anything."""
    executions = on.executions()
    assert {run for run, _ in executions} == {one.run for one in done}
    assert set(executions.values()) == {1}


def _table(done: list[Done]) -> list[str]:
    found: dict[tuple[str, str], list[Done]] = defaultdict(list)
    for one in done:
        found[one.point, one.victim].append(one)
    lines = ["| point | killed | rounds | attempts | executions of user code | s a round |"]
    for (point, victim), ones in sorted(found.items()):
        attempts, took_s = sum(one.attempts for one in ones), sum(one.took_s for one in ones) / len(ones)
        lines.append(f"| {point} | {victim} | {len(ones)} | {attempts} | {len(ones)} | {took_s:.0f} |")
    return lines
