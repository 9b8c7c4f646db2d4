"""The steps of the demonstration, on a local stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from nimbus.cli.output import console, make_table
from nimbus.cli.run.rows import gantt
from nimbus.client.api import Api
from nimbus.client.servers import VARIABLE
from nimbus.demo.checks import BeforeTheKill, check
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
        """Print and run a command, like a user. Raises DemoFailedError: it failed."""
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
        return list(self.api.get("/participants")["participants"])

    def run(self, run_id: str) -> dict[str, Any]:
        """A run, from the API."""
        return dict(self.api.get(f"/runs/{run_id}"))

    def page(self, scheduler_id: str, run_id: str) -> str:
        """The address of a run's page at one of the schedulers."""
        return f"{self.stack.scheduler(number_of(scheduler_id)).url}/ui/runs/{run_id}"

    def drivers(self, run_id: str) -> list[str]:
        """Started attempts of a run: each has created a folder for its output."""
        outputs = self.stack.folder.glob(f"data/*/{run_id}/*/*")
        return sorted(f"{run_id}.{output.parent.name}.{output.name}" for output in outputs)


def number_of(scheduler_id: str) -> int:
    """The number of a scheduler, from its id `scheduler-<n>`."""
    return int(scheduler_id.rpartition("-")[2])


def wait_for(what: str, seconds: float, probe: Callable[[], Any]) -> Any:
    """Call `probe` until its result is true, and return that. DemoFailedError: not in time."""
    until = time.monotonic() + seconds
    while True:
        if answer := probe():
            return answer
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


TAKEOVER_PATIENCE_S = 30.0
RUN_PATIENCE_S = 240.0


def perform(stage: Stage, pipeline: Path, name: str) -> str:
    """Publish, run, kill the leader in the middle, and check the result against every promise.

    Returns:
        The address of the run's page on the final leader.

    Raises:
        DemoFailedError: a promise was not kept; the message names it.
    """
    chapter("Three schedulers queue for one lock; the winner leads once its disk holds every artifact")
    wait_for("a leader", TAKEOVER_PATIENCE_S, stage.api.leader)
    config = str(stage.stack.config_file(1))
    stage.command("pipeline", "publish", str(pipeline), "--activate", "--config", config)
    wait_for("every scheduler to sync the release", 60, lambda: all(p["ready"] for p in stage.participants()))
    stage.command("cluster", "participants")

    chapter(f"A run of {name}, whose tasks are Spark drivers of their own")
    answer = stage.api.command("POST", "/runs", {"pipeline": name, "parameters": {}})
    run_id = str(answer["run_id"])
    standby = next(row["id"] for row in stage.participants() if not row["is_leader"])  # it is not killed
    say(f"run {run_id}; its page: {stage.page(standby, run_id)}")
    watch = RunWatch(stage, run_id)
    before, killed_at = kill_the_leader(stage, watch)

    successor = take_over(stage, before, killed_at)
    watch.until(
        lambda run: run["state"] in ("succeeded", "failed", "stopped"), RUN_PATIENCE_S, "the run's end"
    )
    run = stage.run(run_id)

    chapter("Everybody, as any scheduler answers it")
    stage.command("cluster", "participants")
    chapter("The run's timeline")
    for line in gantt(run, datetime.now(UTC)):
        say(line)
    show_result(stage, run)
    conclude(run, before, successor, stage.drivers(run_id))
    return stage.page(successor["id"], run_id)


class RunWatch:
    """Prints each change of a run."""

    def __init__(self, stage: Stage, run_id: str) -> None:
        self._stage, self._run_id = stage, run_id
        self._seen: dict[str, str] = {}
        self._began = time.monotonic()

    def until(self, enough: Callable[[dict[str, Any]], Any], seconds: float, what: str) -> Any:
        """Show the run until the result of `enough` is true, and return that result."""

        def probe() -> Any:
            run = self._stage.run(self._run_id)
            self._show(run)
            return enough(run)

        return wait_for(what, seconds, probe)

    def _show(self, run: Mapping[str, Any]) -> None:
        for task in run["tasks"]:
            last = task["attempts"][-1] if task["attempts"] else {}
            words = task["state"]
            if task["state"] == "running" and last["started_at"] is None:
                words = "starting"
            if last and self._seen.get(task["name"]) != words:
                self._seen[task["name"]] = words
                passed = time.monotonic() - self._began
                done = f"{run['tasks_done']}/{run['tasks_total']}"
                words = click.style(words, fg="green" if words == "succeeded" else None)
                say(f"{passed:6.1f} s  {done:>5}  {task['name']:<18} {words} on {last['worker']}")


def kill_the_leader(stage: Stage, watch: RunWatch) -> tuple[BeforeTheKill, datetime]:
    """SIGKILL the leader when a Spark task runs on its own worker and another task is done."""
    leader = stage.api.leader()
    if leader is None:
        raise DemoFailedError("nobody leads")

    def in_the_middle(run: dict[str, Any]) -> dict[str, Any] | None:
        done = any(task["state"] == "succeeded" for task in run["tasks"])
        return run if done and attempts_on(run, leader["id"]) else None

    run = watch.until(in_the_middle, RUN_PATIENCE_S, "a Spark task on the leader while another is done")
    before = BeforeTheKill(
        leader=leader["id"],
        epoch=leader["epoch"],
        finished={t["name"]: len(t["attempts"]) for t in run["tasks"] if t["state"] == "succeeded"},
        computing={
            t["name"]: (t["attempts"][-1]["number"], t["attempts"][-1]["pid"])
            for t in run["tasks"]
            if t["state"] == "running" and t["attempts"][-1]["started_at"] is not None
        },
    )
    chapter(f"kill -9 {before.leader}, which leads with epoch {before.epoch}")
    own = ", ".join(task["name"] for task in attempts_on(run, before.leader))
    say(f"computing at this moment: {', '.join(sorted(before.computing))}; on the leader's own worker: {own}")
    killed_at = datetime.now(UTC)
    stage.stack.kill_scheduler(number_of(before.leader))
    return before, killed_at


def take_over(stage: Stage, before: BeforeTheKill, killed_at: datetime) -> Mapping[str, Any]:
    """Wait for the successor and print how long it took."""

    def successor() -> dict[str, Any] | None:
        for participant in stage.participants():
            if (
                participant["is_leader"]
                and participant["id"] != before.leader
                and participant["recovered_at"]
            ):
                return participant
        return None

    row: dict[str, Any] = wait_for("a successor", TAKEOVER_PATIENCE_S, successor)
    led = (datetime.fromisoformat(row["leader_since"]) - killed_at).total_seconds()
    decided = (datetime.fromisoformat(row["recovered_at"]) - killed_at).total_seconds()
    say(
        f"{row['id']} leads with epoch {row['epoch']}: elected {led:.2f} s after the kill, "
        f"first decisions done after {decided:.2f} s"
    )
    say(f"takeover_seconds={decided:.3f}")
    return row


def show_result(stage: Stage, run: Mapping[str, Any]) -> None:
    """Print the figures as a table, and the place of the picture."""
    report = next(task for task in run["tasks"] if task["name"] == "report")
    done = [attempt for attempt in report["attempts"] if attempt["outcome"] == "succeeded"]
    if not done:
        raise DemoFailedError(f"the report was not made: {report['why'] or report['state']}")
    folder = stage.stack.folder / "data" / done[0]["output"]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    chapter("The result")
    console().print(make_table(("figure", "value"), list(figures(summary))))
    picture = folder / "report.svg"
    if not picture.is_file():
        raise DemoFailedError(f"the picture {picture} is missing")
    say(f"picture: {picture}")


def figures(summary: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """The numbers of a summary with their names in words, without its tables."""
    for key, value in summary.items():
        name = f"{above} {key}".replace("_", " ").strip()
        if isinstance(value, Mapping):
            yield from figures(value, name)
        elif isinstance(value, int | float):
            yield name, f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def conclude(
    run: Mapping[str, Any], before: BeforeTheKill, successor: Mapping[str, Any], drivers: list[str]
) -> None:
    """Print each claim with its evidence. Raises DemoFailedError: a claim is false."""
    chapter("Checked")
    claims = check(run, before, new_leader=successor["id"], new_epoch=successor["epoch"], drivers=drivers)
    for claim in claims:
        mark = click.style("yes", fg="green") if claim.holds else click.style("NO", fg="red", bold=True)
        say(f"  {mark:<4} {claim.text}{f': {claim.evidence}' if claim.evidence else ''}")
    broken = [claim.text for claim in claims if not claim.holds]
    if broken:
        raise DemoFailedError(f"not kept: {'; '.join(broken)}")
