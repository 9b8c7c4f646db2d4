"""Finds runs where they are: in ZooKeeper while they live and for a while after, then in history."""

from __future__ import annotations

import structlog

from nimbus.api.explain import Surroundings
from nimbus.api.problems import NotFoundError
from nimbus.api.services import ApiServices
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.refusals import refusals
from nimbus.domain.run import Run, RunState
from nimbus.domain.workers import busy_workers

_log = structlog.stdlib.get_logger(__name__)

MAX_RUNS = 500
"""In one answer."""


def find_run(services: ApiServices, run_id: str) -> tuple[Run, bool]:
    """A run, and whether it came from history.

    Raises:
        NotFoundError: neither ZooKeeper nor history has it.
    """
    wanted = RunId(run_id)
    live = services.reader.run(wanted)
    if live is not None:
        return live, False
    old = services.history.read(wanted)
    if old is None:
        raise NotFoundError(
            "unknown_run", f"run {run_id} is neither live nor in history: see `nimbus run list`."
        )
    return old, True


def refuse_used_id(services: ApiServices, run_id: str) -> None:
    """A run's id names its attempts and its output folders for good, so it serves once.

    The leader sees to it for runs in ZooKeeper; this is for those that have moved to history. While storage
    does not answer, it cannot be checked, and starting runs goes on.

    Raises:
        RefusedError: history has a run of this id.
    """
    wanted = RunId(run_id)
    if services.reader.run(wanted) is not None:
        return  # asking twice starts one run: the leader says so
    try:
        used = services.history.read(wanted) is not None
    except NimbusError as exc:
        if not exc.retryable:
            raise
        _log.warning("history_unavailable", error=str(exc))
        return
    if used:
        raise RefusedError(
            "run_exists", f"run {run_id} was started, and finished, before. Choose another id."
        )


def list_runs(
    services: ApiServices, *, pipeline: str | None, state: RunState | None, limit: int
) -> tuple[list[tuple[Run, bool]], bool]:
    """Runs, newest first, each with whether it came from history; and whether history answered.

    Live runs are listed even when history's storage is down: an outage there hides the past, not the present.
    """
    found: dict[RunId, tuple[Run, bool]] = {run.id: (run, False) for run in services.reader.runs()}
    complete = True
    if state is None or state.is_final:
        name = PipelineName(pipeline) if pipeline is not None else None
        try:
            # A state is filtered here, so more must be read than is wanted.
            for run in services.history.recent(name, MAX_RUNS if state else limit):
                found.setdefault(run.id, (run, True))
        except NimbusError as exc:
            if not exc.retryable:
                raise
            _log.warning("history_unavailable", error=str(exc))
            complete = False
    wanted = [
        (run, archived)
        for run, archived in found.values()
        if pipeline in (None, run.pipeline) and state in (None, run.state)
    ]
    wanted.sort(key=lambda pair: (pair[0].created_at, pair[0].id), reverse=True)
    return wanted[:limit], complete


def surroundings(services: ApiServices) -> Surroundings:
    """What explanations of a live run rest on."""
    leader = services.health.leader()
    runs = services.reader.runs()
    return Surroundings(
        now=services.clock.now(),
        leader=leader.id if leader else None,
        workers=services.reader.workers(),
        busy=busy_workers(runs),
        refusals=refusals(runs),
    )
