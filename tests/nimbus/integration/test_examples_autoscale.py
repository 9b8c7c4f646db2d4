"""The script that starts and ends workers by need: its decisions, and on a real stack."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nimbus.client import Client, UnreachableError, WaitTimeoutError, Wanted
from tests.nimbus.chaos.cluster import Cluster, cluster, until
from tests.thorough import thorough

SCRIPT = Path(__file__).parents[3] / "examples" / "autoscale" / "scale.py"
DEFINITION = """
schema: 1
name: waves
tasks:
  go:
    type: shell
    command: [sh, -ec, "while [ ! -e {gate} ]; do sleep 0.1; done"]
    runs_on: [auto]
"""


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


@dataclass
class Process:
    ended: int | None = None

    def poll(self) -> int | None:
        return self.ended


@dataclass
class Host:
    """A host of the test, which notes what happens."""

    slots: int = 2
    labels: tuple[str, ...] = ("gpu",)
    processes: dict[str, Process] = field(default_factory=dict)

    def start(self, name: str) -> None:
        self.processes[name] = Process()

    def stop(self, name: str) -> None:
        del self.processes[name]


@dataclass
class Answers:
    """A client of the test."""

    slots: list[Wanted] | None = None
    busy: dict[str, int] = field(default_factory=dict)
    stays_busy: bool = False
    calls: list[str] = field(default_factory=list)

    def wanted(self) -> list[Wanted] | None:
        return self.slots

    def workers(self) -> list[dict[str, Any]]:
        return [{"id": name, "busy": busy, "in_clusters": 0} for name, busy in self.busy.items()]

    def drain(self, name: str, **_: object) -> None:
        self.calls.append(f"drain {name}")
        if self.stays_busy:
            raise WaitTimeoutError

    def uncordon(self, name: str) -> None:
        self.calls.append(f"uncordon {name}")


def want(slots: int, *labels: str, target: str = "") -> Wanted:
    return Wanted(labels=labels, target=target, slots=slots, waited_s=1.0)


Make = Callable[..., Any]


@pytest.fixture
def made(scale: ModuleType) -> Make:
    return lambda **more: scale.Scaler(Answers(), Host(), **{"most": 3, "idle_s": 10.0, **more})


def test_as_many_workers_start_as_the_wanted_slots_need_but_no_more_than_the_limit(made: Make) -> None:
    scaler = made()
    scaler.client.slots = [want(1), want(2, "gpu"), want(9, "eu"), want(9, target="big")]
    scaler.step(100.0)
    assert len(scaler.host.processes) == 2, "3 slots that suit, by two"

    scaler.step(101.0)
    assert len(scaler.host.processes) == 2, "the new ones have not got their tasks yet"
    scaler.client.slots = [want(99)]
    scaler.step(200.0)

    assert len(scaler.host.processes) == 3


def test_worker_that_has_been_idle_is_drained_before_it_ends(made: Make) -> None:
    scaler = made()
    scaler.client.slots = [want(1)]
    scaler.step(100.0)
    (name,) = scaler.host.processes
    scaler.client.slots, scaler.client.busy = [], {name: 1, "other": 0}
    for now_s in (110.0, 150.0):
        scaler.step(now_s)
    scaler.client.busy[name] = 0
    scaler.step(159.0)
    assert scaler.client.calls == []

    scaler.client.slots = [want(1)]
    scaler.step(161.0)
    assert len(scaler.host.processes) == 2, "no worker ends while slots are wanted"
    scaler.client.slots = []
    scaler.step(162.0)

    assert scaler.client.calls == [f"drain {name}", f"uncordon {name}"]
    assert name not in scaler.host.processes


def test_worker_that_gets_a_task_while_it_drains_stays(made: Make) -> None:
    scaler = made()
    scaler.host.start("w")
    scaler.client.busy, scaler.client.stays_busy = {"w": 0}, True

    scaler.end("w")

    assert scaler.client.calls == ["drain w", "uncordon w"]
    assert list(scaler.host.processes) == ["w"]


@pytest.mark.parametrize("unknown", [None, UnreachableError({})])
def test_nothing_is_started_or_ended_while_no_leader_says_what_is_wanted(made: Make, unknown: Any) -> None:
    scaler = made()
    scaler.host.start("w")
    scaler.client.busy, scaler.busy_at_s = {"w": 0}, {"w": 0.0}
    if unknown is not None:

        def silent() -> None:
            raise unknown

        scaler.client.wanted = silent

    scaler.step(1_000.0)

    assert (list(scaler.host.processes), scaler.client.calls) == (["w"], [])


def test_dead_worker_is_replaced(made: Make) -> None:
    scaler = made()
    scaler.host.start("dead")
    scaler.host.processes["dead"].ended = -9
    scaler.client.slots = [want(1)]

    scaler.step(100.0)

    assert "dead" not in scaler.host.processes
    assert len(scaler.host.processes) == 1


@pytest.mark.chaos
@thorough
@pytest.mark.timeout(300)
def test_workers_come_when_tasks_wait_and_go_when_they_are_idle(tmp_path: Path) -> None:
    gate, folder = tmp_path / "open", tmp_path / "waves"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(DEFINITION.format(gate=gate))
    with cluster(tmp_path / "stack", schedulers=1) as chaos, Client(_url(chaos)) as nimbus:
        chaos.publish(folder)
        runs = [nimbus.start("waves", {}, run_id=f"waves-{number}").id for number in range(3)]
        words = ["--config", str(chaos.stack.config_file(1)), "--labels", "auto", "--idle", "3"]
        script = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words, "--folder", str(tmp_path / "workers")],
            env={**os.environ, "NIMBUS_SERVER": _url(chaos)},
        )
        try:
            until("two workers of two slots", 90, lambda: _auto(nimbus) == 2)
            until("all tasks to run", 60, lambda: _busy(nimbus) == 3)
            gate.touch()
            assert [nimbus.wait(run, timeout_s=60).state for run in runs] == ["succeeded"] * 3
            until("both workers to end", 90, lambda: _auto(nimbus) == 0)
            assert nimbus.wanted() == []
            assert script.poll() is None
        finally:
            script.send_signal(signal.SIGTERM)
            script.wait(timeout=60)
        assert script.returncode == 0
        assert [str(each) for each in chaos.ledger().violations] == []


def _url(chaos: Cluster) -> str:
    return chaos.stack.addresses.schedulers[0]


def _auto(client: Client) -> int:
    return sum(row["id"].startswith("auto-") for row in client.workers())


def _busy(client: Client) -> int:
    return sum(row["busy"] for row in client.workers())
