"""Helpers of the demonstration: a local stack, a client, and output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from nimbus.client.api import Api
from nimbus.client.servers import VARIABLE
from nimbus.localstack.stack import LocalStack


class DemoFailedError(Exception):
    """A claim of the demonstration failed."""


def say(text: str) -> None:
    """Print a line."""
    click.echo(text)


def chapter(title: str) -> None:
    """Print a heading."""
    say("")
    say(click.style(f"== {title}", bold=True))


@dataclass(frozen=True, slots=True)
class Stage:
    """A started stack, and a client of its schedulers."""

    stack: LocalStack
    api: Api

    def command(self, *words: str) -> None:
        """Print and run a command, like a user.

        Raises:
            DemoFailedError: it failed.
        """
        say(click.style(f"$ nimbus {' '.join(words)}", dim=True))
        servers = ",".join(self.stack.addresses.schedulers)
        sys.stdout.flush()
        done = subprocess.run(
            [sys.executable, "-m", "nimbus.cli.main", *words],
            env={**os.environ, VARIABLE: servers},
            check=False,
        )
        if done.returncode != 0:
            raise DemoFailedError(f"`nimbus {' '.join(words)}` ended with exit code {done.returncode}")

    def participants(self) -> list[dict[str, Any]]:
        """Every scheduler, from the API."""
        found: list[dict[str, Any]] = self.api.get("/participants")["participants"]
        return found

    def run(self, run_id: str) -> dict[str, Any]:
        """A run, from the API."""
        found: dict[str, Any] = self.api.get(f"/runs/{run_id}")
        return found

    def number_of(self, scheduler_id: str) -> int:
        """The number of a scheduler, from its id `scheduler-<n>`."""
        return int(scheduler_id.rpartition("-")[2])

    def page(self, scheduler_id: str, run_id: str) -> str:
        """The address of a run's page at one of the schedulers."""
        return f"{self.stack.addresses.schedulers[self.number_of(scheduler_id) - 1]}/ui/runs/{run_id}"

    def drivers(self, run_id: str) -> list[str]:
        """Started attempts of a run: each has created a folder for its output."""
        outputs = self.stack.folder.glob(f"data/*/{run_id}/*/*")
        return sorted(f"{run_id}.{output.parent.name}.{output.name}" for output in outputs)


def wait_for(what: str, seconds: float, look: Any) -> Any:
    """Call `look` repeatedly until its result is true.

    Raises:
        DemoFailedError: it did not become true in time.
    """
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise DemoFailedError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def attempts_on(run: Mapping[str, Any], worker: str) -> list[dict[str, Any]]:
    """Tasks of a run whose open attempt computes on a worker, in Spark."""
    return [
        task
        for task in run["tasks"]
        if task["state"] == "running"
        and task["kind"] != "python"
        and task["attempts"][-1]["worker"] == worker
        and task["attempts"][-1]["started_at"] is not None
    ]


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def data_folder(stack: LocalStack) -> Path:
    """The folder of outputs of a local stack."""
    return stack.folder / "data"
