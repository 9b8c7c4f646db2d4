"""Explains that the leader has set a subject aside, as text for people. Pure: facts in, sentence out."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain.leader_report import SetAside


def why_aside(found: Iterable[SetAside], kind: str, name: str, task: str = "") -> str | None:
    """Explain a run, a pipeline, a backfill, a command, or a task (`children`); None: it is not set aside."""
    for one in found:
        if (one.kind, one.id, one.task) == (kind, name, task):
            return (
                f"the leader has set {_NAMES.get(kind, 'it')} aside, since it could not decide about it "
                f"({one.why}); it tries again within a minute"
            )
    return None


_NAMES = {"run": "the run", "children": "the task"}
