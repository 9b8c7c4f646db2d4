"""Time until the first line of a program runs on a real standalone cluster: by hand, and as a task."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from tests.nimbus.chaos.cluster import until
from tests.nimbus.chaos.submission_clusters import RealStandalone
from tests.nimbus.chaos.submission_stage import Stage, stage

_LONG_S = 180.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """Seconds of each submission."""

    by_hand_s: list[float]
    ours_s: list[float]


class _Bare(RealStandalone):
    """A real standalone cluster whose tasks make no Spark context."""

    work = ""


def submitted(root: Path, times: int) -> Submitted:
    """Submit by hand and as a task, in turns. The first submission of each kind is not counted."""
    root.mkdir(parents=True)
    with stage(root, _Bare()) as on:
        pairs = [(_by_hand(on, root, number), _as_task(on, f"r{number}")) for number in range(times + 1)]
    by_hand, ours = zip(*pairs[1:], strict=True)
    return Submitted(list(by_hand), list(ours))


def _by_hand(on: Stage, root: Path, number: int) -> float:
    began_at, program = root / f"began-{number}", root / f"by-hand-{number}.py"
    program.write_text(f"import time\nopen({str(began_at)!r}, 'w').write(str(time.time()))\n")
    spark = on.chaos.stack.spark
    leader = until("a master that leads", _LONG_S, spark.leader)
    posted_at = time.time()
    httpx.post(
        f"{leader.rest}/v1/submissions/create",
        json={
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": "4.3.0",
            "appResource": "",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": ["--master", spark.master, str(program)],
            "environmentVariables": {"SPARK_ENV_LOADED": "1", "PYSPARK_PYTHON": sys.executable},
            "sparkProperties": {
                "spark.app.name": "by-hand",
                "spark.master": spark.master,
                "spark.submit.deployMode": "cluster",
                "spark.driver.supervise": "false",
            },
        },
        timeout=30,
    ).raise_for_status()
    until("the program", _LONG_S, lambda: began_at.exists() and began_at.read_text())
    return float(began_at.read_text()) - posted_at


def _as_task(on: Stage, run: str) -> float:
    (on.gates / run).touch()
    on.start(run)
    assert on.chaos.finished(run, _LONG_S)["state"] == "succeeded"
    opened_at = datetime.fromisoformat(on.task(run)["attempts"][0]["opened_at"]).timestamp()
    lines = (json.loads(line) for line in on.journal.read_text().splitlines())
    (began_at,) = (line["at"] for line in lines if line["run"] == run)
    until("the end of the submission", _LONG_S, lambda: not on.submissions())
    return float(began_at) - opened_at
