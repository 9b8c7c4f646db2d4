"""A stack whose drivers are submitted and report through proxies, and rounds in which a process is killed.

Another kind of cluster needs a `PointCluster` of its own, and no more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml

from nimbus.localstack.settings import StackTuning, write_settings
from nimbus.localstack.stack import LocalStack
from tests.chaos.cluster import Cluster, until
from tests.chaos.submission_points import DOOR, GATEWAY, HoldingProxy, Point, Stops, points_of
from tests.standalone_gateway import StandaloneGateway

NAME, TARGET = "points", "standalone"
SCHEDULER, WORKER = "scheduler", "worker"
_PIPELINE = """\
schema: 1
name: {name}
defaults:
  spark: {{target: {target}, deploy: {deploy}}}
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
print(Path({foreign!r}).read_text(), flush=True)  # ids of somebody else's applications
{work}
Path({gates!r}, f"{{ctx.run_id}}.worked").touch()
until = time.monotonic() + 600
while not (Path({gates!r}) / ctx.run_id).exists() and time.monotonic() < until:
    time.sleep(0.05)
"""
_HELD_S = _RUN_S = 600.0
"""A busy machine starts Spark in minutes."""


class PointCluster(Protocol):
    """A cluster whose submissions are stopped at points."""

    standalone: bool
    """The stack's own Spark cluster is started."""
    work: str
    """What a task does, in Python."""
    points: Sequence[Point]

    def gateways(self, stack: LocalStack) -> Sequence[str]:
        """Base URLs of those who take submissions."""
        ...

    def target(self, stack: LocalStack, gateways: Sequence[str], schedulers: Sequence[str]) -> dict[str, Any]:
        """As in the configuration, with the addresses of the proxies."""
        ...

    def close(self) -> None:
        """End what it has started beside the stack."""
        ...


_REST_POINTS = points_of(create=r"POST .*/create\b", status=r"GET .*/status/")


class RealStandalone:
    """Two masters and two workers of Spark; each task makes a Spark context and computes."""

    standalone, points = True, _REST_POINTS
    work = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.range(1000).count() == 1000
"""

    def gateways(self, stack: LocalStack) -> Sequence[str]:
        return [master.rest for master in stack.spark.masters]

    def target(self, stack: LocalStack, gateways: Sequence[str], schedulers: Sequence[str]) -> dict[str, Any]:
        return {**stack.spark.target(), "rest": list(gateways), "schedulers": list(schedulers)}

    def close(self) -> None:
        pass


class FakeStandalone:
    """Drivers as processes, without Spark."""

    standalone, points, work = False, _REST_POINTS, ""

    def __init__(self, root: Path) -> None:
        self.gateway = StandaloneGateway(root)

    def gateways(self, stack: LocalStack) -> Sequence[str]:
        return [self.gateway.url]

    def target(self, stack: LocalStack, gateways: Sequence[str], schedulers: Sequence[str]) -> dict[str, Any]:
        return {
            "kind": "standalone",
            "master": "spark://127.0.0.1:7077",
            "rest": list(gateways),
            "schedulers": list(schedulers),
        }

    def close(self) -> None:
        self.gateway.close()


@dataclass(frozen=True, slots=True)
class Done:
    """A round."""

    point: str
    victim: str
    run: str
    attempts: int
    took_s: float


class Stage:
    """A started stack of two schedulers and a worker of its own. Main thread."""

    def __init__(self, root: Path, cluster: PointCluster, chaos: Cluster, stops: Stops) -> None:
        self._root, self._cluster, self.chaos, self._stops = root, cluster, chaos, stops
        self.journal, self.gates, self.foreign = root / "journal.jsonl", root / "gates", root / "foreign"
        self.gates.mkdir()
        self.foreign.write_text("application_1700000000000_0001 driver-20200101000000-0000")

    def publish(
        self, name: str = NAME, *, deploy: str = "cluster", conf: Mapping[str, str] | None = None
    ) -> None:
        """Publish a pipeline whose task works, and waits for the gate of its run."""
        place = self._root / "pipelines" / name
        place.mkdir(parents=True)
        text = _PIPELINE.format(name=name, target=TARGET, deploy=deploy, conf=json.dumps(dict(conf or {})))
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
        """Ask for a run."""
        self.chaos.command("/runs", {"pipeline": pipeline, "run_id": run, "parameters": {}})

    def task(self, run: str) -> dict[str, Any]:
        """The task of a run, as the API shows it."""
        (task,) = self.chaos.run(run)["tasks"]
        found: dict[str, Any] = task
        return found

    def play(self, point: Point, victim: str, run: str) -> Done:
        """Stop a submission at a point, kill the victim, let the submission go on, start the victim anew."""
        began = time.monotonic()
        until("earlier drivers to be forgotten", 60, lambda: not self.submissions())
        until("the worker", 60, lambda: self.chaos.ask("/status")["workers"] or None)
        self._stops.plan(point, run)
        if point.task_ends:
            (self.gates / run).touch()
        self.start(run)
        until(f"{run}: a request at {point.name}", _HELD_S, self._stops.held.is_set)
        again = self._kill(victim)
        self._stops.release()
        again()
        (self.gates / run).touch()
        found = self.chaos.finished(run, _RUN_S)
        assert found["state"] == "succeeded", found
        (task,) = found["tasks"]
        assert len(self.executions(run)) == 1, (run, self.executions(run), task["attempts"])
        return Done(point.name, victim, run, len(task["attempts"]), time.monotonic() - began)

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
        """Notes on the worker's disk of drivers that it follows."""
        return list(self.chaos.stack.folder.glob("*/**/applications/*.json"))


@contextmanager
def stage(root: Path, cluster: PointCluster) -> Iterator[Stage]:
    """Start all, with a target whose requests pass through proxies."""
    stops = Stops()
    tuning = StackTuning(warms_spark=False)
    stack = LocalStack(root / "stack", 2, workers=1, standalone=cluster.standalone, tuning=tuning)
    with ExitStack() as last_first:
        last_first.callback(cluster.close)
        last_first.enter_context(stack)
        last_first.callback(stops.release)

        def proxied(asked: str, urls: Sequence[str]) -> list[str]:
            proxies = [HoldingProxy(asked, url, stops) for url in urls]
            for proxy in proxies:
                last_first.callback(proxy.close)
            return [proxy.url for proxy in proxies]

        gateways = proxied(GATEWAY, cluster.gateways(stack))
        doors = proxied(DOOR, stack.addresses.schedulers)
        last_first.callback(stops.release)
        _use_target(stack, cluster.target(stack, gateways, doors))
        chaos = Cluster(stack)
        last_first.callback(chaos.http.close)
        chaos.whole()
        made = Stage(root, cluster, chaos, stops)
        made.publish()
        yield made


def _use_target(stack: LocalStack, target: dict[str, Any]) -> None:
    """Write the target into the configuration of all daemons, which are started anew."""
    for daemon in (*stack.schedulers, *stack.workers):
        daemon.kill()
        config = stack.folder / f"{daemon.name}.yaml"
        document = yaml.safe_load(config.read_text())
        write_settings(config, {**document, "spark": {"targets": {TARGET: target}}})
        daemon.spawn()
    stack.wait_ready(timedelta(seconds=120))
