"""A stack whose submissions and drivers' reports pass through proxies, and rounds that kill a process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from nimbus.localstack.daemons import StackTuning, write_settings
from nimbus.localstack.stack import LocalStack
from tests.nimbus.chaos.cluster import Cluster, until
from tests.nimbus.chaos.submission_clusters import PointCluster, Scene
from tests.nimbus.chaos.submission_points import SCHEDULER, HoldingProxy, Point, Stops
from tests.nimbus.chaos.submission_rounds import WORKER

NAME, TARGET = "points", "standalone"
_PIPELINE = """\
schema: 1
name: {name}
defaults:
  spark: {spark}
  retries: {{limit: 3, delay: 1s}}
tasks:
  work: {{type: pyspark, script: work.py, spark: {{conf: {conf}}}}}
"""
_SCRIPT = """\
import json, os, time
from pathlib import Path
from nimbus.task import context

ctx = context()
with open({journal!r}, "a") as file:
    line = {{"run": ctx.run_id, "attempt": ctx.attempt, "pid": os.getpid(), "at": time.time()}}
    file.write(json.dumps(line) + "\\n")
print(Path({foreign!r}).read_text(), flush=True)  # ids of other users' applications
{work}
Path({gates!r}, f"{{ctx.run_id}}.worked").touch()
until = time.monotonic() + 600
while not (Path({gates!r}) / ctx.run_id).exists() and time.monotonic() < until:
    time.sleep(0.05)
"""
_HELD_S = _RUN_S = 300.0
"""On a busy machine, Spark takes minutes to start."""


class Stage:
    """A started stack of two schedulers and a separate worker. Main thread only."""

    def __init__(self, root: Path, cluster: PointCluster, chaos: Cluster, stops: Stops) -> None:
        self._root, self._cluster, self.chaos, self._stops = root, cluster, chaos, stops
        self.journal, self.gates, self.foreign = root / "journal.jsonl", root / "gates", root / "foreign"
        self.gates.mkdir()
        self.foreign.write_text("application_1700000000000_0001 driver-20200101000000-0000")

    def publish(
        self, name: str = NAME, *, deploy: str | None = None, conf: Mapping[str, str] | None = None
    ) -> None:
        """Publish a pipeline whose task works and waits for the gate of its run."""
        place = self._root / "pipelines" / name
        place.mkdir(parents=True)
        spark = {"target": TARGET, **({"deploy": deploy} if deploy else self._cluster.spark)}
        text = _PIPELINE.format(name=name, spark=json.dumps(spark), conf=json.dumps(dict(conf or {})))
        (place / "pipeline.yaml").write_text(text)
        script = _SCRIPT.format(
            journal=str(self.journal),
            gates=str(self.gates),
            foreign=str(self.foreign),
            work=self._cluster.work,
        )
        (place / "work.py").write_text(script)
        self.chaos.publish(place)

    def start(self, run: str, pipeline: str = NAME) -> None:
        """Request a run."""
        self.chaos.command("/runs", {"pipeline": pipeline, "run_id": run, "parameters": {}})

    def task(self, run: str) -> dict[str, Any]:
        """The task of a run, from the API."""
        (task,) = self.chaos.run(run)["tasks"]
        found: dict[str, Any] = task
        return found

    def play(self, point: Point, victim: str, run: str) -> int:
        """Hold a submission at a point, kill the victim, continue the submission, start the victim again.

        Returns:
            Number of opened attempts.
        """
        until("earlier drivers to be forgotten", 60, lambda: not self.submissions())
        for worker in self.chaos.stack.workers:  # a killed worker is still shown for some time
            worker.wait_ready()
        self._stops.plan(point, run)
        if point.task_ends:
            (self.gates / run).touch()
        try:
            self.start(run)
            until(f"{run}: a request at {point.name}", _HELD_S, self._stops.held.is_set)
            again = self._kill(victim)
        finally:
            self._stops.release()
        again()
        (self.gates / run).touch()
        found = self.chaos.finished(run, _RUN_S)
        assert found["state"] == "succeeded", found
        (task,) = found["tasks"]
        assert sum(self.executions(run).values()) == 1, (self.executions(run), task["attempts"])
        return len(task["attempts"])

    def _kill(self, victim: str) -> Callable[[], object]:
        stack = self.chaos.stack
        if victim == WORKER:
            (worker,) = stack.workers
            worker.kill()
            return worker.spawn
        number = int(self.chaos.leader()["id"].rpartition("-")[2])
        stack.kill_scheduler(number)
        return lambda: stack.restart_scheduler(number)

    def executions(self, run: str = "") -> Counter[tuple[str, int]]:
        """How often user code ran for each attempt."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        found = [json.loads(line) for line in lines]
        return Counter((one["run"], one["attempt"]) for one in found if run in ("", one["run"]))

    def submissions(self) -> list[Path]:
        """Records on the worker's disk of the drivers that it follows."""
        return list(self.chaos.stack.folder.glob("*/**/applications/*.json"))


@contextmanager
def stage(root: Path, cluster: PointCluster) -> Iterator[Stage]:
    """Start everything, with a target whose requests pass through proxies."""
    stops = Stops()
    tuning = StackTuning(keeps_jvms=False)
    stack = LocalStack(root / "stack", 2, workers=1, standalone=cluster.standalone, tuning=tuning)
    with ExitStack() as last_first:
        last_first.enter_context(stack)
        last_first.callback(stops.release)

        gateways = [HoldingProxy(SCHEDULER, url, stops) for url in stack.addresses.schedulers]
        for gateway in gateways:
            last_first.callback(gateway.close)
        scene = Scene(
            folder=root / "cluster",
            stack=stack,
            gateways=[gateway.url for gateway in gateways],
            stops=stops,
            last_first=last_first,
        )
        target, of_worker = cluster.start(scene)
        last_first.callback(stops.release)
        _use_target(stack, target, of_worker)
        chaos = Cluster(stack)
        last_first.callback(chaos.http.close)
        chaos.whole()
        made = Stage(root, cluster, chaos, stops)
        made.publish()
        yield made


def _use_target(stack: LocalStack, target: Mapping[str, Any], of_worker: Mapping[str, Any]) -> None:
    """Write the target into the configuration of all daemons, and restart them."""
    for daemon in (*stack.schedulers, *stack.workers):
        daemon.kill()
        config = stack.folder / f"{daemon.name}.yaml"
        document = yaml.safe_load(config.read_text())
        more = of_worker if daemon in stack.workers else {}
        for section, keys in {"spark": {"targets": {TARGET: dict(target)}}, **more}.items():
            document[section] = {**document.get(section, {}), **keys}
        write_settings(config, document)
        daemon.spawn()
    stack.wait_ready(timedelta(seconds=120))
