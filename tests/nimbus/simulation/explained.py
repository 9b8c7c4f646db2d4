"""The law of explanations: while a leader rests, everything that waits has its true reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nimbus.api.explain.facts import cluster_facts
from nimbus.api.explain.pipeline import explain_pipeline
from nimbus.api.explain.run import explain_run, explain_task
from nimbus.api.explain.task import ClusterFacts
from nimbus.api.routes.explanations import explained_run, pipeline_view
from nimbus.domain.commands import StartRun
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.run import Run
from nimbus.engine.decision import BuildRun, FindVersions, PrepareRelease, RenderTask
from tests.nimbus.simulation.catalog import MAX_RUNNING
from tests.nimbus.simulation.laws import Law, hold
from tests.nimbus.store_reader import leading, services_over

if TYPE_CHECKING:
    from tests.nimbus.simulation.scheduler import Scheduler

PROMISES = (
    "gives it to a worker next",
    "the leader starts",
    "more to start",
    "has not applied that yet",
    "renders its templates",
    "it ends next",
    "to see that all is there",
    "deals with them next",
    "starts as soon as the leader has",
    "for the leader, which may have to fetch",
)
"""Explanations that a resting leader must not give, because they explain nothing."""


def check(scheduler: Scheduler) -> None:
    """Compare explanations with a leader that has decided everything and starts no run or task."""
    state, world = scheduler.engine.term.state, scheduler.world
    under_way = any(
        isinstance(job, BuildRun | RenderTask | FindVersions | PrepareRelease) for job, _ in scheduler.jobs
    )
    if under_way or not scheduler.engine._inbox.empty() or _sees_other_workers(scheduler):
        return
    world.leading = leading(state, scheduler.clock)
    if world.services is None:
        cluster, timings = world.zookeeper.cluster, state.policy.timings
        world.services = services_over(cluster, scheduler.clock, lambda: world.leading, MAX_RUNNING, timings)
    services = replace(world.services, clock=scheduler.clock)
    facts, found = cluster_facts(services), world.zookeeper.world
    for run in state.runs.live.values():
        _check_run(scheduler, run, facts)
    for queued in found.commands.values():
        if isinstance(queued.command, StartRun) and queued.command.run_id not in found.runs:
            (reason,) = explained_run(services, queued.command.run_id).reasons
            _check_words(reason.why, queued.id)
    for record in found.pipelines.values():
        for reason in explain_pipeline(record, pipeline_view(services, record, facts)):
            _check_words(reason.why, record.name, reason.about)


def _sees_other_workers(scheduler: Scheduler) -> bool:
    """True if the API cannot know which workers are free for the leader.

    The leader reads every few seconds which workers drain.
    """
    found = scheduler.world.zookeeper.world
    registered = scheduler.engine.term.state.attempts.workers.registered
    return any(
        info.id in registered
        and (info.draining or info.id in found.settings.cordoned) is not registered[info.id].draining
        for info in found.workers.values()
    )


def _check_run(scheduler: Scheduler, run: Run, facts: ClusterFacts) -> None:
    """The whole run, keys that could proceed, and each task that has not ended."""
    slots = scheduler.world.zookeeper.world.slots
    reasons = explain_run(run, slots, facts)
    hold(Law.EXPLAINED, reasons, run.id, run.state, "has no explanation")
    lasting = [task for task in run.tasks.in_order() if not task.state.is_final]
    for reason in (*reasons, *(explain_task(run, task, slots, facts) for task in lasting)):
        _check_words(reason.why, run.id, reason.about)
        if reason.why.startswith("it computes"):
            _check_computes(scheduler, run, reason.about.removeprefix("task "))


def _check_words(why: str, *about: str) -> None:
    hold(Law.EXPLAINED, why not in ("", "waiting", "running"), *about, "is not explained:", why)
    broken = [promise for promise in PROMISES if promise in why]
    hold(Law.EXPLAINED, not broken, *about, "is promised what a leader at rest does not do:", why)


def _check_computes(scheduler: Scheduler, run: Run, name: str) -> None:
    task = next(task for task in run.tasks.in_order() if task.spec.name == name)
    slots = scheduler.world.zookeeper.world.slots[AttemptId(run.id, task.spec.name, task.tried)]
    hold(
        Law.EXPLAINED,
        slots.claim is not None and slots.has_heartbeat and slots.end is None,
        run.id,
        name,
        slots,
    )
