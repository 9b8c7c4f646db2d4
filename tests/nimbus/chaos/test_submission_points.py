"""Submissions to a cluster are held at eight points, where a scheduler or the worker is killed.

NIMBUS_POINT_ROUNDS: rounds for each point and victim.
NIMBUS_POINT_RECORD: a file to which rounds are appended. Rounds that it already contains are not repeated.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.nimbus.chaos.cluster import until
from tests.nimbus.chaos.submission_clusters import CLUSTERS
from tests.nimbus.chaos.submission_points import Point
from tests.nimbus.chaos.submission_rounds import PASSED, VICTIMS, Round, missing, read_rounds, table
from tests.nimbus.chaos.submission_stage import Stage, stage
from tests.report import append, number_from, say
from tests.thorough import thorough

ROUNDS = number_from("NIMBUS_POINT_ROUNDS", 1)
_LEFT_S = 120.0
pytestmark = [thorough, pytest.mark.chaos, pytest.mark.timeout(600 + ROUNDS * 8 * len(VICTIMS) * 300)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", CLUSTERS)
def test_one_application_runs_user_code_wherever_a_submission_is_cut(
    tmp_path: Path, java_home: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    record = Path(os.environ.get("NIMBUS_POINT_RECORD", tmp_path / "rounds.jsonl"))
    cluster = CLUSTERS[kind]()
    points = {point.name: point for point in cluster.points}
    wanted = list(missing(read_rounds(record), kind, list(points), ROUNDS))
    if not wanted:
        pytest.skip(f"{record} has all rounds of {kind}")
    played: dict[str, str] = {}
    try:
        with stage(tmp_path, cluster) as on:
            for point, victim in wanted:
                run = f"{point.replace(' ', '-').lower()}-{victim}-{len(played)}"
                found = play(on, kind, points[point], victim, run)
                append(record, found)
                played[run] = found.verdict
            until("the cluster to have no driver", _LEFT_S, lambda: not cluster.left())
            executions = on.executions()  # also of drivers that started late
            assert {run for run, _ in executions} == set(played)
            assert set(executions.values()) == {1}
            assert set(played.values()) == {PASSED}
    finally:
        say(capsys, table(read_rounds(record)))


def play(on: Stage, kind: str, point: Point, victim: str, run: str) -> Round:
    """Run a round. The result contains the fault, if there is one."""
    began, attempts, verdict = time.monotonic(), 0, PASSED
    try:
        attempts = on.play(point, victim, run)
    except AssertionError as exc:
        verdict = str(exc)
    return Round(
        cluster=kind,
        point=point.name,
        victim=victim,
        attempts=attempts,
        executions=sum(on.executions(run).values()),
        took_s=round(time.monotonic() - began, 1),
        verdict=verdict,
    )
