"""Runs that ended days ago, with the transitions of real runs: the leader's rules, on a clock of their own.

Dates count back from now; everything else is the same in each cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nimbus.definition.intervals import interval_of
from nimbus.domain.attempts.slots import End
from nimbus.domain.cluster.alerts import Lateness
from nimbus.domain.data.datasets import Dataset, versions_of
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.pipeline import FailureClass, PipelineSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome
from nimbus.templates.client import Templates

_templates = Templates()
_NUMBERS = 1 << 8
"""Between the numbers of two runs; all are below those of a leader's runs."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """What happened to the run of one fire time."""

    fire: datetime
    fails: Mapping[str, str] = field(default_factory=dict)
    """Why tasks failed, by task."""
    once: frozenset[str] = frozenset()
    """Tasks whose first attempt alone failed."""
    late: timedelta = timedelta(0)
    """How long after its fire time it was created."""
    slower: float = 1.0
    cause: RunCause = RunCause.SCHEDULE


@dataclass
class Past:
    """The past of one pipeline."""

    spec: PipelineSpec
    release: ReleaseDigest
    took_s: Mapping[str, float]
    """Seconds of its tasks; others take one."""
    seed: int = 1
    runs: list[Run] = field(default_factory=list)
    logs: dict[AttemptId, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def happened(self, days: Iterable[Day], number: Iterator[int]) -> None:
        """Add the runs of some days, in their order."""
        for day in days:
            self.runs.append(self._run(day, next(number) * _NUMBERS))

    def _run(self, day: Day, number: int) -> Run:
        schedule = self.spec.schedule
        assert schedule is not None
        created = day.fire + day.late + timedelta(seconds=0.2)
        draft = Draft(
            id=schedule.run_id(self.spec.name, day.fire),
            pipeline=self.spec.name,
            release=self.release,
            parameters={},
            logical_date=day.fire,
            data_interval=interval_of(schedule, day.fire),
            cause=day.cause,
            asked_at=created,
            submitted_by="schedule",
        )
        run = replace(_templates.render(new_run(self.spec, draft)), number=number)
        run = lifecycle.begin(run, created)
        if day.late:
            run = replace(run, late=(Lateness.EXPECT,))
        return self._worked(run, day, created)

    def _worked(self, run: Run, day: Day, now: datetime) -> Run:
        """Let the tasks of a run begin and end, as workers with room for all of them would."""
        ends: list[tuple[datetime, AttemptId, datetime]] = []
        while not run.state.is_final:
            for name, task in run.tasks.items():
                if lifecycle.is_ready(run, task):
                    began = max(now, task.retry_at or now) + timedelta(
                        seconds=0.1 + 0.3 * self._dice.random()
                    )
                    worker = WorkerId(f"scheduler-{self._dice.randint(1, 3)}")
                    run = lifecycle.open_attempt(run, TaskName(name), worker=worker, epoch=3, now=began)
                    took = self.took_s.get(name, 1.0) * day.slower * self._dice.uniform(0.9, 1.15)
                    attempt = AttemptId(run.id, TaskName(name), task.tried + 1)
                    ends.append((began + timedelta(seconds=took), attempt, began + timedelta(seconds=0.1)))
            ends.sort()
            now, attempt, started = ends.pop(0)
            end = self._end(run, attempt, day, started, now)
            run = lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=10, now=now)
        return run

    def _end(self, run: Run, attempt: AttemptId, day: Day, started: datetime, now: datetime) -> End:
        name = str(attempt.task)
        why = day.fails.get(name, "")
        has_failed = bool(why) or (name in day.once and attempt.number == 1)
        self.logs[attempt] = (
            f"INFO  {name} of {day.fire:%Y-%m-%d}\n{_error(why) if has_failed else ''}".encode()
        )
        return End(
            attempt=str(attempt),
            outcome=Outcome.FAILED if has_failed else Outcome.SUCCEEDED,
            written_by="executor",
            started_at=started,
            ended_at=now,
            exit_code=1 if has_failed else 0,
            failure=FailureClass.ERROR if has_failed else None,
            reason=(why or "ConnectionError: the shop does not answer") if has_failed else "",
            output=None if has_failed else f"{run.pipeline}/{run.id}/{name}/{attempt.number}",
        )

    def index(self, begins: datetime) -> IntervalIndex:
        """The index of the intervals that these runs leave."""
        index = IntervalIndex(begins=begins)
        for run in sorted(self.runs, key=lambda run: run.finished_at or run.created_at):
            index = index.with_run(run)
        return index

    def datasets(self) -> list[Dataset]:
        """The datasets that these runs have published."""
        found: dict[str, Dataset] = {}
        for run in self.runs:
            for publication, version in versions_of(run):
                name = publication.dataset
                made = Dataset(
                    name=name, pipeline=PipelineName(run.pipeline), partition=publication.partition
                )
                before = found.get(name, made)
                found[name] = before.with_version(replace(version, sequence=version.number), lambda _: False)
        return list(found.values())


def _error(why: str) -> str:
    return (
        f'Traceback (most recent call last):\n  File "tasks/read.py", line 14, in main\n{why}\n'
        if why
        else ""
    )


def run_named(runs: Iterable[Run], run_id: str) -> Run:
    """One of some runs."""
    return next(run for run in runs if run.id == RunId(run_id))
