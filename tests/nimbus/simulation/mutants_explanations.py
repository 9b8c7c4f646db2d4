"""Bugs of explanations: the engine is right, but what it tells people is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.api.explain import admission, facts
from nimbus.api.explain import task as task_rules
from nimbus.domain.cluster.schedulers import LeaderReport
from nimbus.domain.starts.admission import Grant
from tests.nimbus.simulation.mutant import mutant, replaced


@mutant
def explanation_overlooks_the_pause_of_a_retry() -> Iterator[None]:
    """A task that waits for its retry is called ready."""
    original = task_rules._waiting

    def waiting(run: Any, task: Any, facts: Any) -> Any:
        return original(run, replace(task, retry_at=None), facts)

    with replaced(task_rules, _waiting=waiting):
        yield


@mutant
def explanation_does_not_ask_the_rule_of_admission() -> Iterator[None]:
    """A task that waits for a slot, a pool or a label is called ready."""

    def admit(_run: Any, _task: Any, capacity: Any, _now: Any) -> Grant:
        return Grant(next(iter(capacity.workers), None))  # type: ignore[arg-type]  # the explanation does not use it

    with replaced(admission, admit=admit):
        yield


@mutant
def explanation_takes_a_silent_attempt_for_one_that_computes() -> Iterator[None]:
    """An attempt without a claim, or without its runner, is reported as running, as in DS."""
    with replaced(task_rules, _running=lambda *_: None):
        yield


@mutant
def explanation_overlooks_what_is_parked() -> Iterator[None]:
    """A parked key is reported as next."""
    original = facts.leader_report

    def leader_report(schedulers: Any) -> LeaderReport:
        return replace(original(schedulers), parked=())

    with replaced(facts, leader_report=leader_report):
        yield
