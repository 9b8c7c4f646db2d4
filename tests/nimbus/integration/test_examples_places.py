"""The examples on a whole local stack: outputs in a folder, a bucket, a cluster; and without ZooKeeper."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.stack import LocalStack
from tests.thorough import thorough

EXAMPLES = Path(__file__).parents[3] / "examples"


@contextmanager
def stack_with(folder: Path, place: str) -> Iterator[LocalStack]:
    """A cluster of one scheduler with a worker, and of Spark where drivers run in a cluster."""
    tuning = StackTuning(slots=2, data_in_s3=place in ("s3", "cluster"), keeps_jvms=False)
    single, standalone = place == "single", place == "cluster"
    with LocalStack(folder, 1, single=single, standalone=standalone, tuning=tuning) as stack:
        stack.wait_ready()
        yield stack


def nimbus(stack: LocalStack, *words: str) -> str:
    """Run a command in this process."""
    done = CliRunner().invoke(cli, words, env={"NIMBUS_SERVER": stack.addresses.schedulers[0]})
    assert done.exit_code == 0, done.output[-3000:]
    return done.stdout


def outputs_of(stack: LocalStack, source: Path, *parameters: str) -> Mapping[str, str]:
    """Publish an example and run it. Returns the output of each task, from its END."""
    config, pipeline = str(stack.config_file(1)), source.name
    nimbus(stack, "pipeline", "publish", str(source), "--activate", "--config", config)
    said = [word for parameter in parameters for word in ("--param", parameter)]
    nimbus(stack, "run", "start", pipeline, *said, "--watch")
    (run,) = json.loads(nimbus(stack, "run", "list", "-o", "json"))["runs"]
    shown = json.loads(nimbus(stack, "run", "show", run["id"], "-o", "json"))
    assert shown["state"] == "succeeded"
    return {task["name"]: task["attempts"][-1]["output"] for task in shown["tasks"]}


def content(stack: LocalStack, place: str, reference: str, path: str) -> bytes:
    """The content of a file of an output."""
    if place in ("folder", "single"):
        return (stack.folder / "data" / reference / path).read_bytes()
    return (stack.s3.objects / "nimbus-data" / reference).with_name(path).read_bytes()


@pytest.mark.parametrize(
    "place", ["s3", *(pytest.param(place, marks=thorough) for place in ("folder", "single"))]
)
def test_hello_runs_with_outputs_in_either_place(tmp_path: Path, java_home: Path, place: str) -> None:
    with stack_with(tmp_path, place) as stack:
        outputs = outputs_of(stack, EXAMPLES / "hello")
        result: dict[str, Any] = json.loads(content(stack, place, outputs["measure"], "result.json"))

    assert result["characters"] == len(result["greeting"])
    assert ("manifest-" in outputs["greet"]) == (place == "s3")


@thorough
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_flights_has_the_same_figures_wherever_its_outputs_and_drivers_are(
    tmp_path: Path, java_home: Path
) -> None:
    found = []
    for place in ("folder", "s3", "cluster", "single"):
        source = flights_at(tmp_path / "source" / place, place)
        with stack_with(tmp_path / place, place) as stack:
            outputs = outputs_of(stack, source, "first_month=1", "last_month=2")
            summary = json.loads(content(stack, place, outputs["report"], "summary.json"))
            assert summary.pop("run_id").startswith("flights-")
            summary.pop("release")  # the cluster has another release
            found.append(summary)

    in_folder, in_bucket, in_cluster, without_zookeeper = found
    assert in_folder == in_bucket == in_cluster == without_zookeeper


def flights_at(folder: Path, place: str) -> Path:
    """The example. For a cluster, only its definition is different."""
    source = folder / "flights"
    shutil.copytree(EXAMPLES / "flights", source)
    definition = source / "pipeline.yaml"
    text = definition.read_text()
    assert text.count("\n  spark:\n") == 1
    if place == "cluster":
        text = text.replace("\n  spark:\n", "\n  spark:\n    target: standalone\n    deploy: cluster\n")
    definition.write_text(text)
    return source
