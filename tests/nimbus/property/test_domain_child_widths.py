"""The widths of child runs limit their number, for any shape of the tree."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.child_runs import width_of
from nimbus.domain.runs.children import ChildSpec, Parent
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.places import top_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MOST = 12
"""Replaces `MAX_AT_A_DEPTH`."""


def run_with(counts: list[int], parent: Parent | None) -> Run:
    """A run whose tasks start the given numbers of child runs."""
    specs = (ChildSpec(pipeline=PipelineName("p"), for_each={"": tuple(range(count))}) for count in counts)
    tasks = (
        TaskSpec(name=TaskName(f"t{number}"), kind=TaskKind.PIPELINE, script="", children=spec)
        for number, spec in enumerate(specs)
    )
    return Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        parent=parent,
        tasks=Tasks(TaskRun(spec=spec) for spec in tasks),
    )


@given(st.data())
def test_a_depth_has_no_more_child_runs_than_the_largest_width_that_is_let_through(
    data: st.DataObject,
) -> None:
    runs, found = [run_with(data.draw(st.lists(st.integers(1, 4), max_size=3)), None)], Counter[int]()
    for depth in range(1, 5):
        below = []
        for run in runs:
            for name, task in run.tasks.items():
                assert task.spec.children is not None
                width = width_of(run, name, task.spec.children.count)
                if width > MOST:
                    continue
                for index in range(task.spec.children.count):
                    link = Parent(
                        run=run.id,
                        top=top_of(run),
                        task=name,
                        attempt=1,
                        index=index,
                        depth=depth,
                        width=width,
                    )
                    below.append(run_with(data.draw(st.lists(st.integers(1, 4), max_size=3)), link))
        found[depth] = len(below)
        runs = below

    assert max(found.values()) <= MOST
