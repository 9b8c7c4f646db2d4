"""The examples on a whole local stack, with outputs in a folder and in a bucket: nothing else differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nimbus.localstack.settings import StackTuning
from nimbus.localstack.stack import LocalStack
from tests.thorough import thorough

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def stack_with(folder: Path, place: str) -> Iterator[LocalStack]:
    """A cluster of one scheduler with a worker."""
    tuning = StackTuning(slots=2, data_in_s3=place == "s3", warms_spark=False)
    with LocalStack(folder, 1, tuning=tuning) as stack:
        stack.wait_ready()
        yield stack


def nimbus(stack: LocalStack, *words: str) -> str:
    """Say something on the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "nimbus.cli.main", *words],
        env={**os.environ, "NIMBUS_SERVER": stack.addresses.schedulers[0]},
        text=True,
        capture_output=True,
        timeout=1000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def outputs_of(stack: LocalStack, pipeline: str, *parameters: str) -> Mapping[str, str]:
    """Publish an example and run it; what END says of each task's output."""
    config = str(stack.config_file(1))
    nimbus(stack, "pipeline", "publish", str(EXAMPLES / pipeline), "--activate", "--config", config)
    said = [word for parameter in parameters for word in ("--param", parameter)]
    nimbus(stack, "run", "start", pipeline, *said, "--watch")
    (run,) = json.loads(nimbus(stack, "run", "list", "-o", "json"))["runs"]
    shown = json.loads(nimbus(stack, "run", "show", run["id"], "-o", "json"))
    assert shown["state"] == "succeeded"
    return {task["name"]: task["attempts"][-1]["output"] for task in shown["tasks"]}


def content(stack: LocalStack, place: str, reference: str, path: str) -> bytes:
    """A file of an output, as it lies there."""
    if place == "folder":
        return (stack.folder / "data" / reference / path).read_bytes()
    return (stack.s3.objects / "nimbus-data" / reference).with_name(path).read_bytes()


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_hello_runs_with_outputs_in_either_place(tmp_path: Path, java_home: Path, place: str) -> None:
    with stack_with(tmp_path, place) as stack:
        outputs = outputs_of(stack, "hello")
        result: dict[str, Any] = json.loads(content(stack, place, outputs["measure"], "result.json"))

    assert result["characters"] == len(result["greeting"])
    assert ("manifest-" in outputs["greet"]) == (place == "s3")


@thorough
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_flights_has_the_same_figures_with_outputs_in_either_place(tmp_path: Path, java_home: Path) -> None:
    found = []
    for place in ("folder", "s3"):
        with stack_with(tmp_path / place, place) as stack:
            outputs = outputs_of(stack, "flights", "first_month=1", "last_month=2")
            found.append(json.loads(content(stack, place, outputs["report"], "summary.json")))
            assert found[-1].pop("run_id").startswith("flights-")

    in_folder, in_bucket = found
    assert in_bucket == in_folder
