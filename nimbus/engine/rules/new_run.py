"""A new run. It is built as an effect: its definition is on the disk, and a template can compute for long.

The command or schedule that starts the run waits for the result; everything else goes on.
"""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.child_runs import with_releases
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.run import Run
from nimbus.engine.agenda import Subject
from nimbus.engine.decision import Answer, BuildRun, Decision, Nothing
from nimbus.engine.refusal import Refusal
from nimbus.engine.state import State


def built(state: State, subject: Subject, draft: Draft, parent: Run | None = None) -> Run | Answer:
    """The run that a draft asks for; a decision to build it; nothing while that is under way.

    Args:
        state: What is known.
        subject: What starts the run. It waits for one run at a time.
        draft: What is asked for. The answer may be of an earlier draft of the same run, with its times.
        parent: Of a child run.

    Raises:
        RefusedError: it cannot be built.
    """
    if subject in state.building:
        return Nothing()
    found = state.built.get(subject)
    if found is None or found.result is None or not _same(found.draft, draft):
        return Decision(
            name="run_building_started",
            effects=(BuildRun(subject, replace(draft, variables=state.settings.variables), parent),),
            about={"run": draft.id},
        )
    if isinstance(found.result, Refusal):
        raise RefusedError(found.result.code, found.result.message)
    return pinned(state, found.result)


def pinned(state: State, run: Run) -> Run:
    """The run with the releases of its child runs, which are those that are active now."""
    names = {task.spec.children.pipeline for task in run.tasks.in_order() if task.spec.children is not None}
    if not names:
        return run
    records = (record for name in names if (record := state.pipelines.get(name)) is not None)
    return with_releases(
        run, {record.name: record.release for record in records if record.release is not None}
    )


def _same(one: Draft, other: Draft) -> bool:
    return (one.id, one.release) == (other.id, other.release)
