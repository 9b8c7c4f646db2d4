"""Checks of the demonstration's claims. Pure: takes records, returns claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NEVER_RAN = frozenset({"fenced", "refused"})
"""Outcomes of attempts whose user code never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTheKill:
    """The state of the run when its leader was killed."""

    leader: str
    epoch: int
    finished: Mapping[str, int]
    """Number of attempts of each task that had succeeded."""
    computing: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Attempt number and driver's process id of each task that was computing."""


@dataclass(frozen=True, slots=True)
class DemoClaim:
    """One claim of the demonstration, with its evidence."""

    text: str
    holds: bool
    evidence: str


def check(
    run: Mapping[str, Any],
    before: BeforeTheKill,
    *,
    new_leader: str,
    new_epoch: int,
    drivers: Collection[str],
) -> list[DemoClaim]:
    """Compare a finished run with the state before the kill.

    `drivers` are the ids of all started attempts, read from the folders of their outputs: evidence that does
    not depend on the schedulers' own records.
    """
    tasks = {task["name"]: task for task in run["tasks"]}
    return [
        _claim("the run succeeded", [f"state is {run['state']}"] if run["state"] != "succeeded" else []),
        _claim(
            "another scheduler took over, with a higher epoch",
            [] if new_leader != before.leader and new_epoch > before.epoch else [f"{new_leader} {new_epoch}"],
        ),
        _claim("every task has exactly one successful attempt", _not_once(tasks)),
        _claim("no task's code ran twice", _ran_twice(tasks, drivers)),
        _claim(
            "no finished work was repeated",
            (f"{name}: {len(tasks[name]['attempts'])} attempts" for name, count in before.finished.items()
             if len(tasks[name]["attempts"]) != count),
        ),
        _claim("what was computing went on in the same attempt", _restarted(tasks, before)),
    ]  # fmt: skip


def _claim(text: str, against: Iterable[str]) -> DemoClaim:
    evidence = "; ".join(against)
    return DemoClaim(text, not evidence, evidence)


def _not_once(tasks: Mapping[str, Any]) -> Iterable[str]:
    for name, task in tasks.items():
        good = sum(attempt["outcome"] == "succeeded" for attempt in task["attempts"])
        if good != 1:
            yield f"{name}: {good}"


def _ran_twice(tasks: Mapping[str, Any], drivers: Collection[str]) -> Iterable[str]:
    by_record = {
        name: sum(attempt["outcome"] not in NEVER_RAN for attempt in task["attempts"])
        for name, task in tasks.items()
    }
    by_disk = Counter(attempt.split(".")[1] for attempt in drivers)
    for name in tasks:
        if (by_record[name], by_disk[name]) != (1, 1):
            yield f"{name}: {by_record[name]} by the record, {by_disk[name]} by the disk"


def _restarted(tasks: Mapping[str, Any], before: BeforeTheKill) -> Iterable[str]:
    if not before.computing:
        yield "nothing was computing"
    for name, (number, _pid) in before.computing.items():
        attempt = next(a for a in tasks[name]["attempts"] if a["number"] == number)
        if attempt["outcome"] != "succeeded":
            yield f"{name}: attempt {number} ended {attempt['outcome']}"
