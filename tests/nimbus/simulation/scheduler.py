"""One scheduler: a real engine driven step by step, its effects, its place in the election."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from leader import Leadership, Participant
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.cluster.alerts import Alert, DeliveryFailure
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.data.outputs import committed_results
from nimbus.domain.data.reads import ReadError
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.parameters import InvalidParametersError
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.drafts import Draft, copied, new_run
from nimbus.domain.runs.lifecycle import begin
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.selection import entered
from nimbus.domain.starts.waits import DataProbe, ProbeResult
from nimbus.engine import events as e
from nimbus.engine.decision import (
    ArchiveOutcomes,
    ArchiveRun,
    ArchiveTerms,
    BuildRun,
    Effect,
    FindVersions,
    PrepareRelease,
    ProbeData,
    Refusal,
    RenderTask,
    ResignLeadership,
    SendAlert,
    StorePurge,
    StoreVersions,
)
from nimbus.engine.history_lookups import EarlierRuns, found_versions, stored_and_found
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.loop import Engine, Steps
from nimbus.engine.policy import AlertPolicy, Policy
from nimbus.engine.state import Built
from nimbus.engine.work_queue import Key
from nimbus.ports import DefinitionNotHereError, History, StoreUnavailableError
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError
from tests.nimbus.simulation import engine_laws
from tests.nimbus.simulation.catalog import MAX_RUNNING, NEWEST_SCHEMA, NOTIFY, TARGETS
from tests.nimbus.simulation.clocks import ProcessClock
from tests.nimbus.simulation.laws import Law, hold
from tests.nimbus.simulation.store import FaultyStore, ProcessKilledError
from tests.nimbus.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World

TEMPLATES = Templates()
PREPARE_TIMEOUT_S = 60.0
"""Time limit after which a missing release is refused."""


def policy_with(keep_finished: timedelta, claim_timeout: timedelta) -> Policy:
    """The limits of all schedulers."""
    return Policy(
        timings=Timings(claim_timeout=claim_timeout),
        keep_finished=keep_finished,
        max_infrastructure_failures=2,  # so that a few hundred seeds reach it
        max_running=MAX_RUNNING,
        newest_schema=NEWEST_SCHEMA,
        raise_schema_after=timedelta(seconds=30),
        alerts=AlertPolicy(targets=frozenset(TARGETS), notify=NOTIFY),
    )


class WatchedEngine(Engine):
    """Gives the simulator access to the term. Its thread is never started."""

    term: LeaderTerm

    def _take_the_lead(self, leadership: Leadership) -> LeaderTerm:
        self.term = super()._take_the_lead(leadership)
        return self.term


class Scheduler:
    """One process. After a kill and restart it has a new engine and the same name."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = ProcessClock(world.time, booted_s=-world.rng.uniform(0, 1e6))
        self.boot = 0
        self.alive = self.paused = self.cut = self.inside = self.deluded = False
        """`inside`: its engine is in a call. `deluded`: it wrongly considers itself the leader."""
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.alive, self.paused, self.deluded = True, False, False
        self.boot += 1
        self.jobs: deque[tuple[Effect, float]] = deque()
        self.store: FaultyStore | None = None
        self.session: Session | None = None
        self.leadership: Leadership | None = None
        """The last epoch that it won."""
        self.engine = WatchedEngine(
            store_for=self._open_store,
            still_leads=self.still_leads,
            start_effect=self._start_effect,
            policy=self.world.policy,
            clock=self.clock,
            metrics=self.world.metrics,
            on_status=lambda: None,
        )
        self._steps: Steps[None] = self.engine.steps()
        next(self._steps)
        self.due_s = inf

    def _open_store(self, leadership: Leadership) -> FaultyStore:
        self.store = FaultyStore(self, leadership)
        return self.store

    # -- faults

    def kill(self) -> None:
        """SIGKILL, at any point."""
        self.alive = False
        if self.session is not None and self.world.rng.random() < 0.5:  # otherwise the server notices later
            self.world.zookeeper.end_session(self.session)

    def die_if_killed(self) -> None:
        """Raises if the process was killed in the meantime."""
        if not self.alive:
            raise ProcessKilledError

    def acts(self) -> bool:
        """True if it runs and is not stopped."""
        return self.alive and not self.paused

    def reaches_zookeeper(self) -> bool:
        """True if its requests are answered."""
        return self.acts() and not self.cut and self.world.zookeeper.available

    # -- election

    def win(self, epoch: int) -> None:
        """Become the leader."""
        token = self.world.zookeeper.cluster.token(epoch)
        participant = Participant(id=self.name, host="h", port=0, boot_id="b")
        self.leadership = Leadership(epoch, token, participant, self.world.zookeeper.world.schema)
        self.engine.elected(self.leadership)

    def still_leads(self) -> bool:
        """Usually true only for the leader; only the fence stops a deluded one."""
        if self.deluded:
            return True
        return self.world.election.holder is self and self.reaches_zookeeper()

    def _leads_in(self, epoch: int) -> bool:
        """Like `LateParts.leads_in`."""
        return self.still_leads() and self.leadership is not None and self.leadership.epoch == epoch

    # -- the engine

    def act(self) -> None:
        """Let the engine process its inbox or timer."""
        if not self.acts() or self.inside:
            return
        batch = self.engine.collect(0.0)
        if not batch and self.world.time.s < self.due_s:
            return
        self.inside = True
        try:
            wait_s = self._steps.send(batch)
        except ProcessKilledError:
            return
        finally:
            self.inside = False
        self.due_s = inf if wait_s is None else self.world.time.s + wait_s
        if wait_s and self.leads_soundly():
            engine_laws.check(self)

    def leads_soundly(self) -> bool:
        """True if it leads and has read everything since the last failure."""
        store, leadership = self.store, self.leadership
        return (
            store is not None
            and not store.doubtful
            and leadership is not None
            and leadership.epoch == self.engine.status.epoch == self.world.zookeeper.world.epoch
            and self.world.election.holder is self
            and self.reaches_zookeeper()
        )

    # -- effects

    def _start_effect(self, effect: Effect) -> None:
        match effect:
            case BuildRun(key, draft) if self.world.rng.random() < 0.9:  # it takes milliseconds
                if not self._build(key, draft):
                    self.jobs.append((effect, self.world.time.s))
            case RenderTask(run, task) if self.world.rng.random() < 0.9 and self.reaches_zookeeper():
                self._render(run, task)
            case ResignLeadership(reason):
                hold(Law.NEVER_FAILS, "engine failed" not in reason, repr(sys.exc_info()[1]))
                self.world.election.resign(self, reason)
            case _:
                self.jobs.append((effect, self.world.time.s))

    def work(self) -> None:
        """Do the oldest job, or postpone it."""
        if not self.jobs or not self.acts():
            return
        job, since_s = self.jobs.popleft()
        if not self._do(job, since_s):
            self.jobs.append((job, since_s))

    def _do(self, job: Effect, since_s: float) -> bool:
        match job:
            case ArchiveRun(run):
                return self._archive(run)
            case ArchiveOutcomes(refusals):
                return self._archive_refusals(refusals)
            case BuildRun(key, draft):
                return self._build(key, draft)
            case RenderTask(read, task):
                return self._render(read, task)
            case FindVersions() | StoreVersions():
                return (
                    self._find_versions(job) if isinstance(job, FindVersions) else self._store_versions(job)
                )
            case ProbeData(probe):
                return self._probe(probe)
            case PrepareRelease(release):
                return self._prepare(release, since_s)
            case SendAlert(alert):
                return self._send(alert)
            case ArchiveTerms() | StorePurge() | ResignLeadership():
                raise AssertionError(f"nothing here asks for this: {job}")

    def _find_versions(self, job: FindVersions) -> bool:
        if not (self.world.storage.available and self.reaches_zookeeper()):
            error = StoreUnavailableError("storage is away")
            self.engine.enqueue(e.FindingFailed(job.run.id, job.task, error))
            return True
        history = cast(History, self.world.storage)
        earlier = EarlierRuns(self.world.zookeeper.world.runs.get, self._slots_of, history)
        try:
            found: Any = found_versions(job.asked, history, partial(earlier.parts, job.run))
        except (ReadError, RefusedError) as exc:
            found = Refusal(exc.code, str(exc))
        self.engine.enqueue(e.VersionsFound(job.run.id, job.task, found))
        return True

    def _store_versions(self, job: StoreVersions) -> bool:
        if not self.world.storage.available:
            return False
        known = self.world.zookeeper.world.datasets.get(job.dataset)
        if job.removes and known is not None:
            kept = known.removing or all(one.number >= job.removes for one in known.versions)
            hold(Law.DATASETS, kept, job.dataset, "loses its history, and may be used")
        try:
            answer: Any = stored_and_found(job, cast(History, self.world.storage))
        except RefusedError as exc:
            answer = Refusal(exc.code, str(exc))
        self.engine.enqueue(e.StoredForCommand(job.command, answer))
        return True

    def _slots_of(self, attempts: Iterable[AttemptId]) -> dict[AttemptId, Slots]:
        """Of all these attempts: their results are not compared."""
        there = self.world.zookeeper.world.slots
        return {one: there.get(one, Slots(end=self.world.ledger.attempts.ends.get(one))) for one in attempts}

    def _archive(self, run_id: RunId) -> bool:
        if not (self.reaches_zookeeper() and self.world.storage.available):
            return False
        run = self.world.zookeeper.world.runs.get(run_id)
        if run is not None:
            self.world.storage.keep(run)
        self.engine.enqueue(e.RunArchived(run_id))
        return True

    def _archive_refusals(self, refusals: tuple[CommandOutcome, ...]) -> bool:
        if not self.world.storage.available:
            return False
        self.world.storage.refusals |= {refusal.command: refusal for refusal in refusals}
        self.engine.enqueue(e.OutcomesArchived(tuple(refusal.command for refusal in refusals)))
        return True

    def _build(self, key: Key, draft: Draft) -> bool:
        """The guard ensures active releases on every disk; but they can be damaged and fetched again."""
        if draft.selection is not None and draft.selection.is_copy and draft.selection.reuse is not None:
            if not self.reaches_zookeeper():
                return False
            earlier = self.world.ledger.runs.all.get(draft.selection.reuse)
            draft = draft if earlier is None else copied(draft, earlier)
        release = ReleaseOf(draft.pipeline, draft.release)
        if not self.world.storage.available and self.world.rng.random() < 0.5:
            self.world.ledger.schedules.waited.add(draft.id)
            self.engine.enqueue(e.BuildingFailed(key, draft, DefinitionNotHereError(release)))
            return True
        if draft.may_exist and draft.id in self.world.ledger.runs.all:
            self.engine.enqueue(e.RunBuilt(key, Built(draft, Refusal("run_exists", "it ran before"))))
            return True
        if draft.selection is not None and not self.reaches_zookeeper():
            return False
        spec = self.world.storage.releases[release]
        try:
            result = self._selected(new_run(spec, draft), draft)
        except InvalidParametersError as exc:
            result = Refusal(exc.code, str(exc))
        self.engine.enqueue(e.RunBuilt(key, Built(draft, result)))
        return True

    def _selected(self, run: Run, draft: Draft) -> Run | Refusal:
        selection = draft.selection
        if selection is None or selection.reuse is None:
            return run
        runs, ends = self.world.zookeeper.world.runs, self.world.ledger.attempts.ends
        used = runs.get(selection.reuse) or self.world.storage.history.get(selection.reuse)
        if used is None or not used.state.is_final or used.pipeline != run.pipeline:
            return Refusal("run_live", "it cannot be used")
        results = {}
        for name, task in used.tasks.items():
            if (attempt := task.committed) is not None:
                origin = used.id if task.reused is None else task.reused.run
                end = ends.get(AttemptId(origin, name, attempt.number))  # a task with child runs has none
                results[name] = {} if end is None else end.result or {}
        try:
            run = entered(run, selection, used, results, by=draft.submitted_by, now=draft.asked_at)
        except RefusedError as exc:
            return Refusal(exc.code, str(exc))
        return begin(run, draft.asked_at)

    def _render(self, run: Run, task: TaskName) -> bool:
        """ZooKeeper may be away for a while."""
        if not self.reaches_zookeeper() or self.world.rng.random() < 0.1:
            error = StoreUnavailableError("it is away")
            self.engine.enqueue(e.RenderingFailed(run.id, task, error))
            return True
        slots = self.world.zookeeper.world.slots
        results = committed_results(
            run,
            run.tasks[task].spec.reads,
            lambda attempts: {one: slots[one] for one in attempts if one in slots},
        )
        try:
            result: TaskSpec | Refusal = TEMPLATES.render_task(run, task, results)
        except TemplateError as exc:
            result = Refusal(exc.code, str(exc))
        self.engine.enqueue(e.TaskRendered(run.id, task, result))
        return True

    def _probe(self, probe: DataProbe) -> bool:
        there = self.world.rng.random() < 0.2
        if there:
            self.world.ledger.runs.found[probe] = self.world.time.s
        self.engine.enqueue(e.DataSeen(probe, ProbeResult(there, "not there")))
        return True

    def _prepare(self, release: ReleaseOf, since_s: float) -> bool:
        storage = self.world.storage
        if storage.available:
            result = storage.releases.get(release) or Refusal("release_absent", "storage does not have it")
        elif self.world.time.s - since_s > PREPARE_TIMEOUT_S:
            result = Refusal("storage_unavailable", "no answer")
        else:
            return False
        self.engine.enqueue(e.ReleasePrepared(release, result))
        return True

    def _send(self, alert: Alert) -> bool:
        """Like `AlertSender`: the target may refuse, or accept without a response."""
        if not self._leads_in(alert.epoch):
            self.engine.enqueue(e.AlertTried(alert.claim, DeliveryFailure("not sure")))
            return True
        if self.world.dice.target_refuses():
            self.engine.enqueue(e.AlertTried(alert.claim, DeliveryFailure("refused")))
            return True
        self.world.ledger.alerts.arrived(alert)
        lost = self.world.dice.reply_is_lost()
        self.engine.enqueue(
            e.AlertTried(alert.claim, DeliveryFailure("no answer", doubtful=True) if lost else None)
        )
        return True
