"""One epoch of leadership: read the state, ask the rules, write what they decide.

A term keeps no state after its end, so a second term of the same process reads everything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog

from leader import LeaderError
from nimbus.domain import writes as w
from nimbus.domain.cluster.terms import Leader
from nimbus.domain.errors import NimbusError, RecordTooLargeError
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.run import Run
from nimbus.engine import events as e
from nimbus.engine.decision import Decision, Effect, NoDecision, ProbeData
from nimbus.engine.policy import Policy
from nimbus.engine.rules import ask, next_key
from nimbus.engine.rules.commands.answers import refuse_command
from nimbus.engine.state import Built, State
from nimbus.engine.state.leadership import TermKeeper
from nimbus.engine.state_reader import MAX_TOGETHER, Follow, StateReader
from nimbus.engine.term_upkeep import TermUpkeep
from nimbus.engine.work_queue import PARTS_OF_RUNS, Instant, Key
from nimbus.ports import (
    Clock,
    LeaderStore,
    SlotTakenError,
    StaleStateError,
    StoreUnavailableError,
)
from nimbus.telemetry.engine import EngineMetrics

_log = structlog.get_logger(__name__)

MAX_CONFLICTS = 5
"""How many conflicts in a row one key may have: its records changed while it was decided."""
MAX_UNEXPLAINED = 100
"""Limit of writes that fail for an unknown reason, within TIDY_EVERY_S. Then the term ends."""
WORKERS_EVERY_S = 5.0
"""How often registrations of workers are read. A watch reports new and lost workers, but not their load."""
FIND_AGAIN_S = 5.0
"""Pause after versions of datasets could not be looked up."""
TIDY_EVERY_S = 60.0
MAX_AT_ONCE = 200
"""Limit of keys that are asked about between two reads of the inbox."""


class _Accepted(NamedTuple):
    """A decision that is applied to the state."""

    key: Key
    decision: Decision
    moved: Sequence[tuple[Run | None, Run]]


class LeaderTerm(StateReader):
    """The leader's work within one epoch. Engine thread only."""

    def __init__(
        self,
        *,
        epoch: int,
        schema: int,
        leader: Leader,
        store: LeaderStore,
        inbox: Callable[[e.Event], None],
        start_effect: Callable[[Effect], None],
        policy: Policy,
        clock: Clock,
        metrics: EngineMetrics,
        follow: Follow | None = None,
    ) -> None:
        state = State(epoch=epoch, schema=schema, policy=policy)
        state.leadership.terms = terms = TermKeeper(leader, clock.elapsed_s())
        super().__init__(state=state, terms=terms, store=store, inbox=inbox, clock=clock, follow=follow)
        self.upkeep = TermUpkeep(terms, store, start_effect, clock)
        self._start_effect = start_effect
        self._log = _log.bind(epoch=epoch)
        self._metrics = metrics
        self._workers_due_s = self._tidy_due_s = clock.elapsed_s()
        self._conflicts: Counter[Key] = Counter()
        self._unexplained = 0
        self._transaction = store.begin()
        self._uncommitted: list[_Accepted] = []
        """Decisions that are applied to `state`, but not yet written to ZooKeeper."""
        self._suspects: set[Key] = set()
        """Keys with decisions in a refused batch. The next decision of each is committed alone."""

    def recover(self) -> None:
        """See `StateReader.recover`. Decisions that are not committed are dropped."""
        super().recover()
        self._transaction, self._uncommitted = self._store.begin(), []

    def apply(self, batch: Iterable[e.Event]) -> None:
        """Apply the content of events. Reads nothing, so that an outage cannot lose an event."""
        for event in batch:
            self._apply(event)

    def _apply(self, event: e.Event) -> None:  # noqa: C901 - one branch for each kind of event
        state = self.state
        match event:
            case e.ReleasePrepared(release, result):
                state.commands.release_prepared(release, result)
            case e.RunBuilt(key, built):
                state.run_built(key, built)
            case e.BuildingFailed(key, draft, error):
                if key in state.builds.under_way:
                    state.run_built(key, Built(draft, None))
                    if not draft.is_early:  # else it is built again when it is due
                        self._park(key, error)
            case e.TaskRendered(run, task, rendered):
                state.tasks.task_rendered(run, task, rendered)
            case e.RenderingFailed(run, task, error):
                if Key("rendering", run, task) in state.tasks.renderings.under_way:
                    self._park(Key("run", run), error)
                state.tasks.task_rendered(run, task, None)
            case e.VersionsFound(run, task, found):
                state.tasks.versions_found(run, task, found)
            case e.FindingFailed(run, task, error):
                _log.warning("versions_not_found", run=run, task=task, error=str(error))
                state.tasks.finding_failed(run, task, self._clock.elapsed_s() + FIND_AGAIN_S)
            case e.DataSeen(probe, seen):
                state.tasks.data_seen(probe, seen, self._now())
            case e.RunArchived(run):
                state.runs.archived(run)
            case e.StoredForCommand(command, answer):
                state.commands.stored_for(command, answer)
            case e.TermsArchived(epochs):
                self.upkeep.terms_archived(epochs)
            case e.OutcomesArchived(commands):
                self.upkeep.outcomes_archived(commands)
            case e.AlertTried(claim, failure):
                state.alerts.tried(claim, failure)
            case e.QuarantineChanged(quarantined):
                state.catalog.put_quarantine(quarantined)
            case (  # see `read_changes` and `Engine.steps`
                e.CommandsChanged()
                | e.WorkersChanged()
                | e.AttemptChanged()
                | e.Elected()
                | e.LeadershipRevoked()
                | e.StopAsked()
            ):
                pass

    def decide(self) -> None:
        """Call the rules for some keys in the work queue, and write their decisions together.

        The rest waits until the inbox is read, so that a flood of keys does not delay events.

        Raises:
            leader.FencedOutError: another scheduler leads.
            StoreUnavailableError: no answer; the last writes may or may not have been applied.
        """
        self.state.runs.put_left()
        for _ in range(MAX_AT_ONCE):
            if len(self._uncommitted) >= MAX_TOGETHER or not self.decide_next():
                break
        self._flush()

    def has_more(self) -> bool:
        """True when there may be more to decide now."""
        self.state.wake(self._now())
        return bool(self._changed or self.state.runs.left) or next_key(self.state) is not None

    def decide_next(self) -> bool:
        """Call the rule of the next key. False: the work queue is empty."""
        state, now = self.state, self._now()
        state.wake(now)  # for each decision, because the wall clock may step between two
        key = next_key(state)
        if key is None:
            return False
        if key.owner in state.work.parked:
            state.dismiss(key)
            return True
        try:
            answer = ask(state, key, now)
        except Exception as exc:  # noqa: BLE001 - whatever a rule fails over harms its key alone
            self._park(key.owner, exc)
            return True
        if isinstance(answer, NoDecision):
            state.postpone(key, answer)
        else:
            self._do(key, answer, now)
        return True

    def _do(self, key: Key, decision: Decision, now: Instant) -> None:
        try:
            if self._alone(key, decision):
                if not self._flush():
                    return
                self._write(decision)
            elif not self._transaction.add(decision.writes):
                if not self._flush():
                    return
                self._transaction.add(decision.writes)
        except (StoreUnavailableError, LeaderError):
            raise
        except (SlotTakenError, StaleStateError) as exc:
            self._overtaken(key, decision, exc)
        except Exception as exc:  # noqa: BLE001 - a record that cannot be written harms its key alone
            self._give_up(key, exc)
        else:
            self._accept(key, decision, now)

    def _write(self, decision: Decision) -> None:
        alone = self._store.begin()
        alone.add(decision.writes)
        alone.commit()

    def _accept(self, key: Key, decision: Decision, now: Instant) -> None:
        moved: list[tuple[Run | None, Run]] = []
        for write in decision.writes:
            if isinstance(write, w.PutRun):
                moved.append((write.before, write.run))
            elif isinstance(write, w.CreateRun):
                moved.append((None, write.run))
            elif isinstance(write, (w.WriteClaim, w.WriteEnd)):  # committed alone, so already written
                self._note_fenced(write.attempt)
        self.state.apply(decision, now)
        self._uncommitted.append(_Accepted(key, decision, moved))
        if self._alone(key, decision):
            if decision.writes:
                self._suspects.discard(key.owner)
                self._conflicts.pop(key.owner, None)
            self._committed(now)

    def _alone(self, key: Key, decision: Decision) -> bool:
        """True when everything before must be committed first. Effects depend on written state, too."""
        return key.owner in self._suspects or decision.may_lose or not decision.writes

    def _flush(self) -> bool:
        """Commit the collected decisions. False: the commit was refused; read everything again."""
        if not self._uncommitted:
            return True
        started = self._now()
        try:
            self._transaction.commit()
        except (StoreUnavailableError, LeaderError):
            raise
        except Exception as exc:  # noqa: BLE001 - one bad decision harms its key alone: find out which
            self._count_unexplained(exc)
            _log.info("batch_refused", decisions=len(self._uncommitted), why=repr(exc))
            self._suspects |= {accepted.key.owner for accepted in self._uncommitted}
            self.recover()
            return False
        self._transaction = self._store.begin()
        self._committed(started)
        return True

    def _committed(self, since: Instant) -> None:
        """Log and count the committed decisions, and start what follows."""
        took_s = self._clock.elapsed_s() - since.elapsed_s
        done, self._uncommitted = self._uncommitted, []
        self._terms.decisions += len(done)
        opened: list[AttemptId] = []
        for _, decision, moved in done:
            self._metrics.decided(decision.name, took_s)
            for before, after in moved:
                self._metrics.run_moved(before, after)
            self._notify_followers(after for _, after in moved)
            for write in decision.writes:
                if isinstance(write, w.CreateAttempt):
                    opened.append(write.attempt)
                elif isinstance(write, w.PutPipeline) and (skipped := write.skipped):
                    self._metrics.fires_skipped(write.record.name, skipped)
            log = self._log.debug if decision.repeated else self._log.info
            log(decision.name, **decision.about)
            for effect in decision.effects:
                self._start_effect(effect)
        if opened:
            self._await_ends(opened)

    def _note_fenced(self, attempt: AttemptId) -> None:
        """Count attempts of earlier leaders that this leader fences."""
        opened = self.state.attempts.find(attempt)
        if opened is not None and opened[1].opened_by_epoch != self.state.epoch:
            self._terms.fenced.add(attempt)

    def _overtaken(self, key: Key, decision: Decision, exc: NimbusError) -> None:
        """Records changed during a decision: read them again. After MAX_CONFLICTS, park the key."""
        _log.info("decision_overtaken", decision=decision.name, why=str(exc), **decision.about)
        self._conflicts[key.owner] += 1
        if self._conflicts[key.owner] > MAX_CONFLICTS:
            del self._conflicts[key.owner]
            self._give_up(key, exc)
            return
        if key.kind in PARTS_OF_RUNS or key.kind in ("run", "child", "children"):
            self._read_run(key.run)
        for write in decision.writes:
            self._read_again(write)

    def _give_up(self, key: Key, exc: Exception) -> None:
        """Refuse a command that cannot be acted on; park any other key."""
        self._count_unexplained(exc)
        queued = self.state.commands.waiting.get(key.command) if key.kind == "command" else None
        if queued is None:
            self._park(key.owner, exc)
            return
        code = exc.code if isinstance(exc, RecordTooLargeError) else "conflict"
        now = self._now()
        refusal = refuse_command(self.state, queued, code, str(exc), now.wall)
        if not self._flush():
            return
        try:
            self._write(refusal)
        except (SlotTakenError, StaleStateError) as again:
            self._park(key.owner, again)
        else:
            self._accept(key, refusal, now)
            self._committed(now)

    def _count_unexplained(self, exc: Exception) -> None:
        if not isinstance(exc, NimbusError):
            self._unexplained += 1
            if self._unexplained > MAX_UNEXPLAINED:
                raise exc

    def _park(self, key: Key, exc: Exception) -> None:
        """Call no rule for a key for a while, so that all others go on.

        No number of such keys ends the term: a successor would apply the same rules to the same records.
        """
        why = f"{type(exc).__name__}: {exc}"
        _log.error("key_parked", kind=key.kind, id=key.name, why=why, exc_info=exc)
        self.state.park(key, why)

    def tend(self) -> None:
        """Do periodic work that no event triggers. Raises as `decide`."""
        now_s = self._clock.elapsed_s()
        self._read_grown(now_s)
        for probe in self.state.tasks.probes.take_due(now_s):
            self._start_effect(ProbeData(probe))
        if now_s >= self._workers_due_s:
            self._workers_due_s = now_s + WORKERS_EVERY_S
            self.state.put_workers(self._store.read_workers(), self._now())
            self.state.put_schedulers(self._store.read_schedulers(), self._now())
        if now_s >= self._tidy_due_s:
            self._tidy_due_s = now_s + TIDY_EVERY_S
            self._unexplained = 0
            self._try_again()
        self.upkeep.tend()

    def _try_again(self) -> None:
        """Try parked keys again. Their records are read again, because they may have changed."""
        keys = tuple(self.state.work.parked)
        self.state.work.parked.clear()
        for key in keys:
            match key.kind:
                case "pipeline" | "deadline":
                    self._read_pipeline(key.pipeline)
                case "backfill":
                    self._read_backfill(key.backfill)
                case "command":
                    self.state.commands.line_up(key.command)
                case "term" | "abdication" | "schema" | "alert" | "fresh" | "hold":
                    self.state.work.add(key)
                case (
                    "run"
                    | "child"
                    | "children"
                    | "attempt"
                    | "finished"
                    | "late"
                    | "overdue"
                    | "pins"
                    | "queue"
                    | "rendering"
                    | "task"
                    | "wait"
                ):
                    self._read_run(key.run)
                case "worker":
                    pass  # its rule cannot fail

    def idle_s(self) -> float | None:
        """Seconds until there is work without an event; None: only events bring work."""
        now = self._now()
        idle_s = self.state.work.idle_s(now)
        moments_s = (next(iter(self._young.values()), None), self.state.tasks.probes.next_due_s())
        waits = [moment_s - now.elapsed_s for moment_s in moments_s if moment_s is not None]
        return min([*waits, *([] if idle_s is None else [idle_s])], default=None)
