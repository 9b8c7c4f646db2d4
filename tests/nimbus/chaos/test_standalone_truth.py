"""Wrong reports of a real standalone cluster and their effects; and drivers that Nimbus must not touch.

NIMBUS_UNREACHABLE_S: how long both masters are stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbus.localstack.standalone import SparkMaster
from tests.nimbus.chaos.cluster import moment, until
from tests.nimbus.chaos.submission_clusters import RealStandalone
from tests.nimbus.chaos.submission_stage import Stage, stage
from tests.report import number_from
from tests.thorough import thorough

UNREACHABLE_S = number_from("NIMBUS_UNREACHABLE_S", 300)
_LONG_S = 300.0
pytestmark = [thorough, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(1200 + UNREACHABLE_S)]


@pytest.fixture
def on(tmp_path: Path, java_home: Path) -> Iterator[Stage]:
    with stage(tmp_path, RealStandalone()) as made:
        yield made


def masters(on: Stage) -> list[SparkMaster]:
    return on.chaos.stack.spark.masters


def leader(on: Stage) -> SparkMaster:
    return until("a master that leads", 120, on.chaos.stack.spark.leader)


def state_of(on: Stage, driver: str) -> str:
    """The state of a driver, as the leading master reports it."""
    return str(httpx.get(f"{leader(on).rest}/v1/submissions/status/{driver}").json().get("driverState"))


def begin(on: Stage, run: str, pipeline: str = "points") -> None:
    on.start(run, pipeline)
    until(f"{run} has computed", _LONG_S, (on.gates / f"{run}.worked").exists)


def finish(on: Stage, run: str) -> dict[str, Any]:
    (on.gates / run).touch()
    found = on.chaos.finished(run, _LONG_S)
    assert found["state"] == "succeeded"
    return found


def followed(on: Stage) -> str:
    """The id of the only driver that the worker follows."""
    (record,) = on.submissions()
    return str(json.loads(record.read_text())["driver"])


def foreign_driver(on: Stage) -> str:
    """Submit a driver outside Nimbus, which sleeps. Returns its id."""
    program = on.journal.parent / "foreign.py"
    program.write_text("import time; time.sleep(1200)")
    properties = {"spark.app.name": "foreign", "spark.master": on.chaos.stack.spark.master}
    answer = httpx.post(
        f"{leader(on).rest}/v1/submissions/create",
        json={
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": "4.3.0",
            "appResource": "",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": ["--master", on.chaos.stack.spark.master, str(program)],
            "environmentVariables": {"SPARK_ENV_LOADED": "1", "PYSPARK_PYTHON": sys.executable},
            "sparkProperties": {**properties, "spark.submit.deployMode": "cluster"},
        },
    ).json()
    return str(answer["submissionId"])


def test_driver_that_ended_while_both_masters_were_down_has_succeeded_though_they_say_error(
    on: Stage,
) -> None:
    foreign = foreign_driver(on)
    on.foreign.write_text(f"{foreign} application_1700000000000_0001")  # the task prints it
    until("the foreign driver", _LONG_S, lambda: state_of(on, foreign) == "RUNNING")
    begin(on, "down")
    driver = followed(on)
    for master in masters(on):
        master.kill()

    found = finish(on, "down")  # while no master runs

    for master in masters(on):
        master.spawn()
    until("the master to say so", _LONG_S, lambda: state_of(on, driver) == "ERROR")
    until("the driver to be forgotten", _LONG_S, lambda: not on.submissions())
    assert [attempt["outcome"] for attempt in found["tasks"][0]["attempts"]] == ["succeeded"]
    assert on.executions("down") == {("down", 1): 1}
    assert state_of(on, foreign) == "RUNNING"


def test_killed_driver_of_a_client_is_repeated_though_the_master_calls_it_finished(on: Stage) -> None:
    on.publish("client", deploy="client")
    begin(on, "killed", "client")
    (line,) = on.journal.read_text().splitlines()

    os.kill(json.loads(line)["pid"], signal.SIGKILL)

    until("the master to say so", _LONG_S, lambda: _completed(on) == ["FINISHED"])
    until("the task computes again", _LONG_S, lambda: len(on.executions("killed")) == 2)
    attempts = finish(on, "killed")["tasks"][0]["attempts"]
    assert attempts[0]["outcome"] != "succeeded"
    assert attempts[1]["outcome"] == "succeeded"
    assert on.executions("killed") == {("killed", 1): 1, ("killed", 2): 1}


def _completed(on: Stage) -> list[str]:
    return [application["state"] for application in leader(on).state().get("completedapps", ())]


def test_attempt_that_waits_in_a_full_cluster_is_explained_with_the_figures_of_the_queue(on: Stage) -> None:
    on.publish("large", conf={"spark.driver.memory": "64g"})
    on.start("waits", "large")

    def explained() -> bool:
        return " of 4 cores and " in str(on.task("waits")["why"])

    until("the explanation", _LONG_S, explained)
    why = str(on.task("waits")["why"])
    assert why.startswith("submitted to target standalone as driver-"), why
    assert why.endswith("are in use, 1 driver and 0 applications wait"), why
    on.chaos.command("/runs/waits/stop", {"reason": "it would wait for ever"})
    assert on.chaos.finished("waits", _LONG_S)["state"] == "stopped"
    until("the driver to be killed", _LONG_S, lambda: not on.submissions())


def test_nothing_is_killed_or_run_twice_while_both_masters_are_stopped(on: Stage) -> None:
    begin(on, "before")
    driver = followed(on)
    for master in masters(on):
        master.send_signal(signal.SIGSTOP)
    on.start("meanwhile")

    moment(UNREACHABLE_S)

    attempts = on.task("before")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == [None]
    assert on.executions() == {("before", 1): 1}
    assert finish(on, "before")["tasks"][0]["attempts"][0]["outcome"] == "succeeded"
    for master in masters(on):
        master.send_signal(signal.SIGCONT)
    until(
        "the masters to lead or end",
        _LONG_S,
        lambda: any(not one.running or one.leads for one in masters(on)),
    )
    for master in masters(on):  # a master that has lost its leadership ends
        if not master.running:
            master.stop()
            master.spawn()
    until("the task computes", 2 * _LONG_S, lambda: bool(on.executions("meanwhile")))
    finish(on, "meanwhile")
    until("all drivers to be forgotten", _LONG_S, lambda: not on.submissions())
    assert sum(on.executions("meanwhile").values()) == 1
    assert state_of(on, driver) in ("FINISHED", "ERROR")
