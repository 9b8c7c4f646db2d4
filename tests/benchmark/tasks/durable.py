"""Kills schedulers, workers, executors and zygotes while pooled tasks run; checks that no task is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from nimbus import records
from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.tasks.laws import committed_once, none_left, started_once
from tests.benchmark.tasks.marks import count_ends, read_marks
from tests.benchmark.tasks.ours import Ask, OurStack, our_stack, until
from tests.benchmark.tasks.shapes import task_document
from tests.benchmark.tasks.usage import (
    DRIVERS,
    EXECUTOR,
    FORK_SERVER,
    HARNESS,
    HELPERS,
    S3,
    SCHEDULER,
    WORKER,
    ZOOKEEPER,
    ZYGOTE,
    rss_mib,
    tree,
)
from tests.benchmark.tasks.whole_run import Plan

_WIDTH = 100
_LIVE_RUNS = 10
"""Most runs that are requested and have not ended."""
_SCHEDULERS, _WORKERS, _SLOTS = 2, 2, 4
_POINTS = {"10 %": 0.1, "50 %": 0.5, "100 %": 1.0}
_SILENCE_S = 180.0
"""Longest time without the end of a task."""
_LOOK_EVERY_S = 0.5
_LEFT_S = 60.0
_MOST = {
    HARNESS: 2, ZOOKEEPER: 1, S3: 1, SCHEDULER: _SCHEDULERS, HELPERS: 2 * _SCHEDULERS,
    WORKER: _WORKERS, FORK_SERVER: _WORKERS, EXECUTOR: _WORKERS, ZYGOTE: _WORKERS,
    DRIVERS: _WORKERS,  # forked ahead
}  # fmt: skip
"""Most processes of each kind that may exist while no task runs."""
_VICTIMS = (SCHEDULER, WORKER, EXECUTOR, ZYGOTE)


@dataclass
class Durable:
    """The result of a trial.

    Args:
        faults: Laws that were broken; empty: none.
        memory: RSS in MiB of each process, at shares of `quiet_tasks`, during which nothing is killed.
    """

    tasks: int
    runs: int
    killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_VICTIMS, 0))
    attempts: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    quiet_tasks: int = 0
    memory: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.faults

    @property
    def tasks_per_s(self) -> float:
        return self.tasks / self.took_s if self.took_s else 0.0

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def durable(plan: Plan, tasks: int, seed: int) -> Durable:
    """Run `tasks` tasks under kills, then half as many undisturbed; stop, and check what is left."""
    runs = max(1, tasks // _WIDTH)
    result = Durable(tasks=runs * _WIDTH, runs=runs)
    ask = Ask(slots=_SLOTS, schedulers=_SCHEDULERS, workers=_WORKERS)
    with our_stack(plan.after, plan.place, ask) as stack:
        stack.start()
        try:
            Trial(stack, result, plan.scale.kills_s, random.Random(seed)).go()
        except BenchFailedError as exc:
            result.faults.append(str(exc))
        if result.faults:
            kept = plan.place.parent / "bench-tasks-faulty"
            shutil.rmtree(kept, ignore_errors=True)
            stack.close(keep=kept)
            plan.say(f"logs and ZooKeeper's data are kept in {kept}")
    return result


class Trial:
    """One trial. Main thread."""

    def __init__(
        self, stack: OurStack, result: Durable, kills_s: tuple[float, float], chance: random.Random
    ) -> None:
        self._stack, self._result, self._kills_s, self._chance = stack, result, kills_s, chance
        self._marks = stack.folder / "marks"
        self._kill_at = time.monotonic() + kills_s[0]

    def go(self) -> None:
        """Run the whole trial."""
        result = self._result
        tasks = {f"t{number:03}": task_document(self._marks, []) for number in range(_WIDTH)}
        self._stack.publish("durable", tasks)
        began = time.monotonic()
        disturbed = [f"durable-{number:04}" for number in range(result.runs)]
        for _ in self._ended_of(disturbed):
            self._kill_now_and_then()
        result.took_s = time.monotonic() - began
        if not any(result.killed.values()):
            result.faults.append("no process was killed: too few tasks")
        self._stack.ask("await_ready")
        quiet = [f"quiet-{number:04}" for number in range(max(1, result.runs // 2))]
        result.quiet_tasks = len(quiet) * _WIDTH
        for ended in self._ended_of(quiet):
            self._remember_memory(ended)
        for run in (*disturbed, *quiet):
            self._check_run(run)
        result.faults += started_once(read_marks(self._marks), result.tasks + result.quiet_tasks)
        self._check_left()

    def _ended_of(self, runs: list[str]) -> Iterator[int]:
        """Request runs, a few at a time, until all have ended; yields the number of tasks that have ended."""
        before = count_ends(self._marks)
        asked: list[str] = []
        todo, last, silent_since = list(runs), -1, time.monotonic()
        while todo or asked:
            while todo and len(asked) < _LIVE_RUNS:
                asked.append(todo.pop(0))
                self._stack.begin("durable", asked[-1])
            ended = count_ends(self._marks) - before
            if ended != last:
                last, silent_since = ended, time.monotonic()
            if time.monotonic() - silent_since > _SILENCE_S:
                raise BenchFailedError(f"no task has ended for {_SILENCE_S:.0f} s; {asked} are running")
            yield ended
            threading.Event().wait(_LOOK_EVERY_S)
            asked = [run for run in asked if not self._has_ended(run)]
        yield count_ends(self._marks) - before

    def _has_ended(self, run: str) -> bool:
        found = self._stack.get(f"/runs/{run}")
        return found is not None and found["state"] in ("succeeded", "failed", "stopped")

    def _remember_memory(self, ended: int) -> None:
        for point, share in _POINTS.items():
            if point not in self._result.memory and ended >= share * self._result.quiet_tasks:
                self._result.memory[point] = self._memory()

    def _memory(self) -> dict[str, float]:
        processes = tree(self._stack.pid)
        pids: dict[str, int] = dict(self._stack.ask("pids"))
        for kind in (EXECUTOR, ZYGOTE):
            of_kind = sorted(process.pid for process in processes if process.kind == kind)
            pids |= {f"{kind} {number}": pid for number, pid in enumerate(of_kind, 1)}
        return {name: round(rss_mib(pid), 1) for name, pid in pids.items()}

    # Kills.

    def _kill_now_and_then(self) -> None:
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = now + self._chance.uniform(*self._kills_s)
            self._kill(self._chance.choice(_VICTIMS))

    def _kill(self, kind: str) -> None:
        """Kill a process: only a descendant of this process, so only one that the benchmark started."""
        if kind in (EXECUTOR, ZYGOTE):
            pids = [process.pid for process in tree(self._stack.pid) if process.kind == kind]
            if not pids:
                return
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(sorted(pids)), signal.SIGKILL)
        else:
            count = _SCHEDULERS if kind == SCHEDULER else _WORKERS
            self._stack.ask("kill", name=f"{kind}-{self._chance.randint(1, count)}")
        self._result.killed[kind] += 1

    # Laws.

    def _check_run(self, run: str) -> None:
        faults, shown = self._result.faults, self._stack.get(f"/runs/{run}")
        if shown is None or shown["state"] != "succeeded":
            faults.append(f"run {run} is {shown['state'] if shown else 'not there'}")
            return
        self._result.attempts += sum(task["attempts"][-1]["number"] for task in shown["tasks"])
        outcomes = {
            task["name"]: [attempt["outcome"] for attempt in task["attempts"]] for task in shown["tasks"]
        }
        faults += committed_once(f"record of {run}", outcomes, _WIDTH)
        file = self._stack.objects / "history" / "runs" / f"{run}.json"
        until(f"the history of run {run}", _LEFT_S, file.exists)
        stored = records.RUN.decode(file.read_bytes(), str(file)).tasks.in_order()
        outcomes = {task.spec.name: [attempt.outcome for attempt in task.attempts] for task in stored}
        faults += committed_once(f"history of {run}", outcomes, _WIDTH)

    def _check_left(self) -> None:
        with suppress(BenchFailedError):
            until("no process or folder is left", _LEFT_S, lambda: not self._left(), every_s=_LOOK_EVERY_S)
        self._result.faults += self._left()

    def _left(self) -> list[str]:
        folders = self._stack.folder.glob("*/worker/executors/*/tasks/*")
        kinds = [process.kind for process in tree(self._stack.pid)]
        return [f"{folder} is left" for folder in folders] + list(none_left(kinds, _MOST))
