"""Checks a finished run against the promises, with three independent sources. Pure.

The API shows the schedulers' state; the journal shows what ran; ZooKeeper's log shows what was committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from tests.nimbus.chaos.journal import Execution

SUCCEEDED = "succeeded"


def check_run(
    run: Mapping[str, Any],
    executions: Sequence[Execution],
    ends: Mapping[str, Mapping[str, Any]],
    *,
    silent: Collection[str] = (),
) -> list[str]:
    """Faults of a run; empty if there are none.

    Args:
        run: The response of `GET /api/v1/runs/<id>`.
        executions: The whole journal; other runs are ignored.
        ends: END of each attempt, from ZooKeeper's log.
        silent: Tasks that write no journal.
    """
    own = [each for each in executions if each.run == run["id"]]
    run_ends = {attempt: end for attempt, end in ends.items() if attempt.rsplit(".", 2)[0] == run["id"]}
    return [
        *_not_succeeded(run),
        *_not_once(run, run_ends),
        *_disagreement(run, run_ends),
        *_executed_twice(own),
        *_overlapping(own),
        *_repeated(own, run_ends),
        *_hollow(own, {attempt: end for attempt, end in run_ends.items() if _task(attempt) not in silent}),
    ]


def check_undisturbed(run: Mapping[str, Any], executions: Sequence[Execution]) -> list[str]:
    """Faults if a task of a run did not run exactly once, from beginning to end."""
    found = []
    for name in _tasks(run):
        own = [each for each in executions if each.run == run["id"] and each.task == name]
        if len(own) != 1:
            found.append(f"{name} ran {len(own)} times, not once")
        found += [f"{each.attempt} did not come to its end" for each in own if not each.ended]
    return found


def check_versions(
    versions: Sequence[Mapping[str, Any]], published: Mapping[str, str], runs: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Faults of a dataset: each success must have published once, and nothing else may have published.

    Args:
        versions: All versions, from the API.
        published: For each task that publishes, the task whose output it publishes.
        runs: All runs of its pipeline, as for `check_run`.
    """
    wanted = Counter(
        f"{run['id']}.{made}.{_tasks(run)[made]['attempts'][-1]['number']} by {name}"
        for run in runs
        for name, made in published.items()
        if any(attempt["outcome"] == SUCCEEDED for attempt in _tasks(run)[name]["attempts"])
    )
    found = Counter(f"{version['source']} by {version['task']}" for version in versions)
    return [
        *(f"{version} was published {count} times" for version, count in found.items() if count > 1),
        *(f"{version} is not published" for version in wanted - found),
        *(f"{version} is published without a success" for version in found.keys() - wanted.keys()),
    ]


def _task(attempt: str) -> str:
    return attempt.rsplit(".", 2)[1]


def _tasks(run: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {task["name"]: task for task in run["tasks"]}


def _not_succeeded(run: Mapping[str, Any]) -> Iterator[str]:
    if run["state"] != SUCCEEDED:
        yield f"the run is {run['state']}: {run['reason']}"


def _not_once(run: Mapping[str, Any], ends: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    good = Counter(map(_task, _successful(ends)))
    for name in _tasks(run):
        if good[name] != 1:
            yield f"{name} has {good[name]} successful ENDs, not one"
    for name in good.keys() - _tasks(run).keys():
        yield f"there is an END of {name}, which is no task of the run"


def _disagreement(run: Mapping[str, Any], ends: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The schedulers' state of each attempt must equal the committed one."""
    for name, task in _tasks(run).items():
        for attempt in task["attempts"]:
            attempt_id = f"{run['id']}.{name}.{attempt['number']}"
            committed = ends[attempt_id]["outcome"] if attempt_id in ends else None
            if attempt["outcome"] != committed:
                yield f"{attempt_id} is {attempt['outcome']} in the run and {committed} by its END"


def _executed_twice(executions: Iterable[Execution]) -> Iterator[str]:
    for attempt, count in Counter(each.attempt for each in executions).items():
        if count > 1:
            yield f"{attempt} was executed {count} times"


def _overlapping(executions: Iterable[Execution]) -> Iterator[str]:
    for one, other in combinations(sorted(executions, key=lambda each: each.start_ns), 2):
        if one.task == other.task and other.start_ns <= one.last_ns:
            together_ms = (min(one.last_ns, other.last_ns) - other.start_ns) / 1e6
            yield f"{one.attempt} and {other.attempt} ran at the same time for {together_ms:.0f} ms"


def _repeated(executions: Sequence[Execution], ends: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A task that has succeeded must not run again."""
    for attempt in _successful(ends):
        _, task, number = attempt.rsplit(".", 2)
        finished_ns = max((each.last_ns for each in executions if each.attempt == attempt), default=0)
        for each in executions:
            later = each.number > int(number) or (finished_ns and each.start_ns > finished_ns)
            if each.task == task and later:
                yield f"{each.attempt} was executed although {attempt} had succeeded"


def _hollow(executions: Sequence[Execution], ends: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A success must have an execution that reached its end."""
    for attempt in _successful(ends):
        if not any(each.attempt == attempt and each.ended for each in executions):
            yield f"{attempt} has a successful END and did not come to its end"


def _successful(ends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted(attempt for attempt, end in ends.items() if end["outcome"] == SUCCEEDED)
