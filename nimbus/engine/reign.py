"""One epoch of leadership: read the state, ask the rules, write what they decide.

A reign keeps no state after its end, so a second reign of the same process reads everything again.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice, takewhile
from typing import NamedTuple, assert_never

import structlog

from leader import LeaderError
from nimbus.domain import terms
from nimbus.domain import writes as w
from nimbus.domain.errors import NimbusError, RecordTooLargeError
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId
from nimbus.domain.run import Run
from nimbus.domain.terms import TERMS_KEPT, EndCause, Leader, Term
from nimbus.engine import news as n
from nimbus.engine.agenda import PARTS_OF_RUNS, Instant, Subject, about_rendering, about_run
from nimbus.engine.decision import ArchiveOutcomes, ArchiveTerms, Decision, Effect, LookAt, Nothing
from nimbus.engine.policy import Policy
from nimbus.engine.rules import ask, next_subject
from nimbus.engine.rules.commands import refuse_command
from nimbus.engine.state import Built, State
from nimbus.engine.term_keeper import TermKeeper
from nimbus.ports import (
    CatalogPart,
    Clock,
    FencedOutError,
    LeaderStore,
    LoadedPart,
    RegisteredPart,
    RunsPart,
    SlotTakenError,
    StaleStateError,
    StoreUnavailableError,
)
from nimbus.telemetry.engine import EngineMetrics

_log = structlog.get_logger(__name__)

MAX_CONFLICTS = 5
"""How many conflicts in a row one subject may have: its records changed while it was decided."""
MAX_UNEXPLAINED = 100
"""Limit of writes that fail for an unknown reason, within TIDY_EVERY_S. Then the reign ends."""
WORKERS_EVERY_S = 5.0
"""How often registrations of workers are read. A watch reports new and lost workers, but not their load."""
FIND_AGAIN_S = 5.0
"""Pause after versions of datasets could not be looked up."""
SEEN_EVERY_S = 5.0
"""How often the leader writes a sign of life into its term's record; up to 10 s if nothing else happens. This
is the precision with which the end of a dead leader is known."""
YOUNG_S = 1.0
"""A new attempt is watched only for its END for this long. Most have ended by then, and cost the leader one
read instead of three. No decision about a claim or a heartbeat is due so early."""
TIDY_EVERY_S = 60.0
OUTCOMES_KEPT = timedelta(hours=1)
"""How long a client can read the outcome of its command."""
MAX_OUTCOMES = 10_000
"""Limit of kept outcomes, because an hour of many commands may not fit into ZooKeeper."""
KEYS_KEPT = timedelta(hours=24)
"""How long after a decision a repeated request with the same key gets the same answer."""
MAX_KEYS = 500
"""Limit of keys that one pass reads."""
PRUNE_AGAIN_S = 1.0
"""Pause between two passes that remove outcomes, while more are left."""
MAX_AT_ONCE = 200
"""Limit of subjects that are asked about between two looks at the inbox."""
MAX_TOGETHER = 32
"""Limit of decisions that are written together, and of changed attempts that are read at once: a turn takes
about 5 ms."""
COMMANDS_AT_ONCE = 1000
"""Limit of new commands that are read at once."""


Follow = Callable[[int, Run], None]
"""Called with each run that is read or written, and with the epoch of the reign."""


@contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector: repeated scans would take a quarter of a large takeover's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Accepted(NamedTuple):
    """A decision that is applied to the state."""

    subject: Subject
    decision: Decision
    moved: Sequence[tuple[Run | None, Run]]
    """Runs before and after."""


class Reign:
    """The leader's work within one epoch. Engine thread only."""

    def __init__(
        self,
        *,
        epoch: int,
        schema: int,
        leader: Leader,
        store: LeaderStore,
        inbox: Callable[[n.News], None],
        start_effect: Callable[[Effect], None],
        policy: Policy,
        clock: Clock,
        metrics: EngineMetrics,
        follow: Follow | None = None,
    ) -> None:
        self._schema = schema
        self._store = store
        self._inbox = inbox
        self._start_effect = start_effect
        self._log = _log.bind(epoch=epoch)
        self._clock = clock
        self._metrics = metrics
        self._follow = follow
        self.state = State(epoch=epoch, schema=schema, policy=policy)
        self.state.leadership.terms = self._terms = TermKeeper(leader, clock.elapsed_s())
        self._workers_due_s = self._tidy_due_s = self._prune_due_s = clock.elapsed_s()
        self._seen_due_s = clock.elapsed_s() + SEEN_EVERY_S
        self._young: dict[AttemptId, float] = {}
        """Attempts that are watched for their END alone, with the time of the next full look."""
        self._changed: dict[AttemptId, None] = {}
        """Attempts that have changed and are not read yet."""
        self._archiving_outcomes = False
        self._archived_outcomes: tuple[CommandId, ...] = ()
        """Outcomes to remove."""
        self._archived_terms: tuple[int, ...] = ()
        """Terms to remove. Terms are pruned once in a reign, because a reign adds only one."""
        self._terms_pruned = False
        self._conflicts: Counter[Subject] = Counter()
        self._unexplained = 0
        self._transaction = store.begin()
        self._parts = store.load()
        self._uncommitted: list[_Accepted] = []
        """Decisions that are applied to `state`, but not yet written to ZooKeeper."""
        self._suspects: set[Subject] = set()
        """Subjects with decisions in a refused batch. The next decision of each is committed alone."""
        store.subscribe(
            commands=lambda: inbox(n.CommandsChanged()),
            workers=lambda: inbox(n.WorkersChanged()),
            attempt=lambda attempt: inbox(n.AttemptChanged(attempt)),
        )

    # -- reading

    def recover(self) -> None:
        """Reset the state, so that `read_on` reads all of it again. Attempts and effects under way go on."""
        before, self.state = (
            self.state,
            State(epoch=self.state.epoch, schema=self._schema, policy=self.state.policy),
        )
        self.state.keep_from(before)
        self._terms.begin_reading()
        self._young.clear()
        self._changed.clear()
        self._transaction, self._uncommitted = self._store.begin(), []
        self._parts = self._store.load()

    def read_on(self) -> None:
        """Read the next part of the state, until all parts are read.

        Raises:
            StoreUnavailableError: it could not be read; call `recover` to begin again.
        """
        if not self.state.census_taken:
            with _garbage_collector_paused():
                self._take_in(next(self._parts))

    def _take_in(self, part: LoadedPart) -> None:
        state, now = self.state, self._now()
        match part:
            case RegisteredPart(
                workers=workers,
                schedulers=schedulers,
                abdication=abdication,
                terms=newest,
                settings=settings,
                alerts=alerts,
                health=health,
            ):
                state.put_settings(settings, now)
                state.put_workers(workers, now)
                state.put_schedulers(schedulers, now)
                state.leadership.put_abdication(abdication)
                state.leadership.put_terms(newest)
                state.alerts.put_all(alerts, health)
                state.catalog.datasets = part.datasets
                for consumer, due in part.due.items():
                    state.catalog.put_due(consumer, due)
                for name, index in part.intervals.items():
                    state.put_intervals(name, index)
                for backfill in part.backfills:
                    state.catalog.put_backfill(backfill)
            case RunsPart(runs=runs, slots=slots):
                self._terms.count(runs, slots)
                for run in runs:
                    state.runs.put(run, now, slots)
                self._tell_followers(run for run in runs if not run.state.is_final)
            case CatalogPart(pipelines=pipelines, commands=commands):
                for record in pipelines:
                    state.put_pipeline(record)
                for queued in commands:
                    state.commands.put(queued)
                state.take_census()
                self._note_adopted()
            case _:
                assert_never(part)

    def _note_adopted(self) -> None:
        adopted = claimed = 0
        for attempt_id, slots in self.state.attempts.slots.items():
            opened = self.state.attempts.find(attempt_id)
            if opened is not None and opened[1].opened_by_epoch != self.state.epoch:
                adopted += 1
                claimed += slots.claim is not None
        if adopted:
            _log.info("attempts_adopted", epoch=self.state.epoch, adopted=adopted, claimed=claimed)

    def hear(self, batch: Iterable[n.News]) -> None:
        """Apply the content of news. Reads nothing, so that no outage can lose news, which come only once."""
        for news in batch:
            match news:
                case n.ReleasePrepared(release, result):
                    self.state.commands.release_prepared(release, result)
                case n.RunBuilt() | n.BuildingFailed():
                    self._hear_of_building(news)
                case n.TaskRendered() | n.RenderingFailed() | n.VersionsFound() | n.FindingFailed():
                    self._hear_of_ready(news)
                case n.DataSeen(look, seen):
                    self.state.tasks.data_seen(look, seen, self._now())
                case n.RunArchived() | n.OutcomesArchived() | n.TermsArchived() | n.StoredForCommand():
                    self._hear_of_history(news)
                case n.AlertTried(claim, failure):
                    self.state.alerts.tried(claim, failure)
                case n.QuarantineChanged(quarantined):
                    self.state.catalog.put_quarantine(quarantined)
                case (  # see `look` and `Engine.steps`
                    n.CommandsChanged()
                    | n.WorkersChanged()
                    | n.AttemptChanged()
                    | n.Elected()
                    | n.Revoked()
                    | n.StopAsked()
                ):
                    continue

    def _hear_of_building(self, news: n.RunBuilt | n.BuildingFailed) -> None:
        match news:
            case n.RunBuilt(subject, built):
                self.state.run_built(subject, built)
            case n.BuildingFailed(subject, draft, error):
                if subject in self.state.builds.under_way:
                    self.state.run_built(subject, Built(draft, None))
                    if not draft.is_early:  # else it is built again when it is due
                        self._set_aside(subject, error)

    def _hear_of_history(
        self, news: n.RunArchived | n.OutcomesArchived | n.TermsArchived | n.StoredForCommand
    ) -> None:
        match news:
            case n.RunArchived(run):
                self.state.runs.archived(run)
            case n.StoredForCommand(command, answer):
                self.state.commands.stored_for(command, answer)
            case n.TermsArchived(epochs):
                self._archived_terms = epochs
            case n.OutcomesArchived(commands):
                self._archiving_outcomes, self._archived_outcomes = False, commands
                if commands:
                    self._prune_due_s = self._clock.elapsed_s()

    def _hear_of_ready(
        self, news: n.TaskRendered | n.RenderingFailed | n.VersionsFound | n.FindingFailed
    ) -> None:
        """Apply what a ready task has waited for: its texts, or the versions that it reads."""
        tasks = self.state.tasks
        match news:
            case n.TaskRendered(run, task, result):
                tasks.task_rendered(run, task, result)
            case n.RenderingFailed(run, task, error):
                if about_rendering(run, task) in tasks.renderings.under_way:
                    self._set_aside(about_run(run), error)
                tasks.task_rendered(run, task, None)
            case n.VersionsFound(run, task, found):
                tasks.versions_found(run, task, found)
            case n.FindingFailed(run, task, error):
                _log.warning("versions_not_found", run=run, task=task, error=str(error))
                tasks.finding_failed(run, task, self._clock.elapsed_s() + FIND_AGAIN_S)

    def look(self, batch: Iterable[n.News]) -> None:
        """Read what has changed, once, however many news report it.

        Raises:
            StoreUnavailableError: it could not be read; call `recover` to read everything again.
        """
        batch = tuple(batch)
        if any(isinstance(news, n.CommandsChanged) for news in batch):
            self._read_commands()
        if any(isinstance(news, n.WorkersChanged) for news in batch):
            self.state.put_workers(self._store.read_workers(), self._now())
        self._changed |= {news.attempt: None for news in batch if isinstance(news, n.AttemptChanged)}
        changed = list(islice(self._changed, MAX_TOGETHER))
        for attempt in changed:
            del self._changed[attempt]
        self._look_at(changed)

    def _read_commands(self) -> None:
        new = self._store.read_commands(self.state.commands.waiting.keys(), COMMANDS_AT_ONCE)
        for queued in new:
            self.state.commands.put(queued)
        if len(new) == COMMANDS_AT_ONCE:
            self._inbox(n.CommandsChanged())  # there may be more

    def _look_at(self, attempts: Collection[AttemptId]) -> None:
        """Read the slots of those attempts that are open, all together."""
        known = sorted(attempt for attempt in attempts if attempt in self.state.attempts.slots)
        if not known:
            return
        ended = self._store.read_ends([attempt for attempt in known if attempt in self._young])
        others = self._store.read_slots([attempt for attempt in known if attempt not in ended])
        now = self._now()
        for attempt, slots in (*ended.items(), *others.items()):
            self._young.pop(attempt, None)
            self.state.attempts.put_slots(attempt, slots, now)

    def _await_ends(self, attempts: Iterable[AttemptId]) -> None:
        opened = sorted(attempts)
        self._store.await_ends(opened)
        self._young.update(dict.fromkeys(opened, self._clock.elapsed_s() + YOUNG_S))

    def _look_at_grown(self, now_s: float) -> None:
        """Read all slots of attempts that are no longer young; `_young` is in the order of their times."""
        grown = list(takewhile(lambda attempt: self._young[attempt] <= now_s, self._young))
        for attempt in grown:
            del self._young[attempt]
        self._look_at(grown)

    # -- deciding

    def decide(self) -> None:
        """Call the rules for some subjects on the agenda, and write their decisions together.

        The rest waits until the inbox is read, so that a flood of subjects does not delay news.

        Raises:
            FencedOutError: another scheduler leads.
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
        return bool(self._changed or self.state.runs.left) or next_subject(self.state) is not None

    def decide_next(self) -> bool:
        """Call the rule of the next subject. False: the agenda is empty."""
        state, now = self.state, self._now()
        state.wake(now)  # for each decision, because the wall clock may step between two
        subject = next_subject(state)
        if subject is None:
            return False
        if subject.owner in state.agenda.set_aside:
            state.dismiss(subject)
            return True
        try:
            answer = ask(state, subject, now)
        except Exception as exc:  # noqa: BLE001 - whatever a rule fails over harms its subject alone
            self._set_aside(subject.owner, exc)
            return True
        if isinstance(answer, Nothing):
            state.postpone(subject, answer)
        else:
            self._do(subject, answer, now)
        return True

    def _do(self, subject: Subject, decision: Decision, now: Instant) -> None:
        try:
            if self._alone(subject, decision):
                if not self._flush():
                    return
                self._write(decision)
            elif not self._transaction.add(decision.writes):
                if not self._flush():
                    return
                self._transaction.add(decision.writes)
        except (FencedOutError, StoreUnavailableError, LeaderError):
            raise
        except (SlotTakenError, StaleStateError) as exc:
            self._overtaken(subject, decision, exc)
        except Exception as exc:  # noqa: BLE001 - a record that cannot be written harms its subject alone
            self._give_up(subject, exc)
        else:
            self._accept(subject, decision, now)

    def _write(self, decision: Decision) -> None:
        """Apply the writes of one decision in their own transaction."""
        alone = self._store.begin()
        alone.add(decision.writes)
        alone.commit()

    def _accept(self, subject: Subject, decision: Decision, now: Instant) -> None:
        moved: list[tuple[Run | None, Run]] = []
        for write in decision.writes:
            if isinstance(write, w.PutRun):
                moved.append((write.before, write.run))
            elif isinstance(write, w.CreateRun):
                moved.append((None, write.run))
            elif isinstance(write, (w.WriteClaim, w.WriteEnd)):  # committed alone, so already written
                self._note_fenced(write.attempt)
        self.state.apply(decision, now)
        self._uncommitted.append(_Accepted(subject, decision, moved))
        if self._alone(subject, decision):
            if decision.writes:
                self._suspects.discard(subject.owner)
                self._conflicts.pop(subject.owner, None)
            self._committed(now)

    def _alone(self, subject: Subject, decision: Decision) -> bool:
        """True when everything before must be committed first. Effects depend on written state, too."""
        return subject.owner in self._suspects or decision.may_lose or not decision.writes

    def _flush(self) -> bool:
        """Commit the collected decisions. False: the commit was refused; read everything again."""
        if not self._uncommitted:
            return True
        started = self._now()
        try:
            self._transaction.commit()
        except (FencedOutError, StoreUnavailableError, LeaderError):
            raise
        except Exception as exc:  # noqa: BLE001 - one bad decision harms its subject alone: find out which
            self._count_unexplained(exc)
            _log.info("batch_refused", decisions=len(self._uncommitted), why=repr(exc))
            self._suspects |= {accepted.subject.owner for accepted in self._uncommitted}
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
            self._tell_followers(after for _, after in moved)
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

    def _tell_followers(self, runs: Iterable[Run]) -> None:
        if self._follow is not None:
            for run in runs:
                self._follow(self.state.epoch, run)

    def _note_fenced(self, attempt: AttemptId) -> None:
        """Count attempts of earlier leaders that this leader fences."""
        found = self.state.attempts.find(attempt)
        if found is not None and found[1].opened_by_epoch != self.state.epoch:
            self._terms.fenced.add(attempt)

    # -- trouble

    def _overtaken(self, subject: Subject, decision: Decision, exc: NimbusError) -> None:
        """Records changed during a decision: read them again. After MAX_CONFLICTS, give up the subject."""
        _log.info("decision_overtaken", decision=decision.name, why=str(exc), **decision.about)
        self._conflicts[subject.owner] += 1
        if self._conflicts[subject.owner] > MAX_CONFLICTS:
            del self._conflicts[subject.owner]
            self._give_up(subject, exc)
            return
        if subject.kind in PARTS_OF_RUNS or subject.kind in ("run", "child", "children"):
            self._read_run(subject.run)
        for write in decision.writes:
            self._read_again(write)

    def _read_again(self, write: w.Write) -> None:
        """Read again the record of a refused write."""
        match write:
            case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
                self.state.alerts.put_all(self._store.read_alerts(), self._store.read_health())
            case w.CreateRun(run) | w.PutRun(run, _):
                self._read_run(run.id)
            case w.CreatePipeline(record) | w.PutPipeline(record, _) | w.RemovePipelineRecord(record):
                self._read_pipeline(record.name)
            case w.PutBackfill(backfill, _) | w.RemoveBackfill(backfill):
                self._read_backfill(backfill.id)
            case w.CreateTerm() | w.PutTerm():
                self.state.leadership.put_terms(self._store.read_terms())
            case w.PutDataset() | w.RemoveDatasetRecord() | w.PutDue() | w.PutIntervals():
                self._read_data_again(write)
            case w.PutCommand(queued, _):
                self.state.commands.drop(queued.id)
                self._read_commands()
            case w.ConsumeCommand(outcome):
                self.state.commands.drop(outcome.command)
                self._read_commands()
            case (
                w.PutAbdication()
                | w.PutSettings()
                | w.RaiseSchema()
                | w.RemoveRun()
                | w.CreateAttempt()
                | w.RemoveAttempt()
                | w.Assign()
                | w.Unassign()
                | w.WriteClaim()
                | w.WriteEnd()
                | w.RequestStop()
            ):
                pass  # nobody else writes these, or they are read with the run of the subject

    def _read_data_again(self, write: w.DataWrite) -> None:
        match write:
            case w.PutDataset(dataset, _) | w.RemoveDatasetRecord(dataset):
                self.state.catalog.datasets.pop(dataset.name, None)
                self.state.catalog.datasets.update(self._store.read_datasets([dataset.name]))
            case w.PutDue(pipeline, _, _):
                self.state.catalog.put_due(pipeline, self._store.read_due(pipeline))
            case w.PutIntervals(pipeline, _, _):
                self.state.put_intervals(pipeline, self._store.read_intervals(pipeline))

    def _read_run(self, run_id: RunId) -> None:
        run = self._store.read_run(run_id)
        self.state.runs.forget(run_id)
        if run is not None:
            self.state.runs.put(run, self._now())
            self._look_at(run.open_attempts())

    def _read_pipeline(self, name: PipelineName) -> None:
        record = self._store.read_pipeline(name)
        if record is None:
            self.state.forget_pipeline(name)
        else:
            self.state.put_pipeline(record)

    def _read_backfill(self, backfill_id: BackfillId) -> None:
        backfill = self._store.read_backfill(backfill_id)
        if backfill is None:
            self.state.catalog.forget_backfill(backfill_id)
        else:
            self.state.catalog.put_backfill(backfill)

    def _give_up(self, subject: Subject, exc: Exception) -> None:
        """Refuse a command that cannot be acted on; set anything else aside."""
        self._count_unexplained(exc)
        queued = self.state.commands.waiting.get(subject.command) if subject.kind == "command" else None
        if queued is None:
            self._set_aside(subject.owner, exc)
            return
        code = exc.code if isinstance(exc, RecordTooLargeError) else "conflict"
        now = self._now()
        refusal = refuse_command(self.state, queued, code, str(exc), now.wall)
        if not self._flush():
            return
        try:
            self._write(refusal)
        except (SlotTakenError, StaleStateError) as again:
            self._set_aside(subject.owner, again)
        else:
            self._accept(subject, refusal, now)
            self._committed(now)

    def _count_unexplained(self, exc: Exception) -> None:
        if not isinstance(exc, NimbusError):
            self._unexplained += 1
            if self._unexplained > MAX_UNEXPLAINED:
                raise exc

    def _set_aside(self, subject: Subject, exc: Exception) -> None:
        """Call no rule for a subject for a while, so that all others go on.

        No number of such subjects ends the reign: a successor would apply the same rules to the same records.
        """
        why = f"{type(exc).__name__}: {exc}"
        _log.error("subject_set_aside", kind=subject.kind, id=subject.name, why=why, exc_info=exc)
        self.state.put_aside(subject, why)

    # -- the rest

    def tend(self) -> None:
        """Do periodic work that no news triggers: long attempts, workers, old outcomes, subjects set aside.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: ZooKeeper does not answer.
        """
        now_s = self._clock.elapsed_s()
        self._look_at_grown(now_s)
        if now_s >= self._seen_due_s:
            self._seen_due_s = now_s + SEEN_EVERY_S
            self._tend_term()
        for look in self.state.tasks.looks.take_due(now_s):
            self._start_effect(LookAt(look))
        if now_s >= self._workers_due_s:
            self._workers_due_s = now_s + WORKERS_EVERY_S
            self.state.put_workers(self._store.read_workers(), self._now())
            self.state.put_schedulers(self._store.read_schedulers(), self._now())
        if now_s >= self._tidy_due_s:
            self._tidy_due_s = now_s + TIDY_EVERY_S
            self._unexplained = 0
            self._try_again()
        if now_s >= self._prune_due_s:
            self._prune_outcomes(now_s)

    def _tend_term(self) -> None:
        """Write a sign of life, and archive terms beyond the limit."""
        if (own := self._terms.own) is not None and own.end is None:
            self._put_term(terms.seen(self._terms.counted(own), self._clock.now()))
        if self._archived_terms:
            self._store.forget_terms(self._archived_terms)
            self._archived_terms = ()
        if not self._terms_pruned:
            self._terms_pruned = True
            if old := self._store.old_terms(TERMS_KEPT):
                self._start_effect(ArchiveTerms(old))

    def end_term(self, cause: EndCause, *, reason: str = "", by: str = "") -> None:
        """Record that this leader's term ends now. This is its last write, and no decision follows.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: no answer. The successor then closes the term.
        """
        if (own := self._terms.own) is not None and own.end is None:
            self._put_term(
                terms.ended(self._terms.counted(own), cause, self._clock.now(), reason=reason, by=by)
            )

    def _put_term(self, term: Term) -> None:
        """Write our own term, in a transaction without decisions."""
        try:
            transaction = self._store.begin()
            transaction.add((w.PutTerm(term),))
            transaction.commit()
        except StaleStateError as exc:  # deleted by hand: no reason to end leadership
            _log.warning("term_not_recorded", epoch=term.epoch, error=str(exc))
        else:
            self._terms.own = term

    def _prune_outcomes(self, now_s: float) -> None:
        """Remove old outcomes after history has them."""
        if self._archived_outcomes:
            self._store.forget_outcomes(self._archived_outcomes)
            self._archived_outcomes = ()
        pruned = self._store.prune_outcomes(self._clock.now() - OUTCOMES_KEPT, MAX_OUTCOMES)
        if pruned.old and not self._archiving_outcomes:
            self._archiving_outcomes = True
            self._start_effect(ArchiveOutcomes(pruned.old))
        self._store.prune_keys(self._clock.now() - KEYS_KEPT, MAX_KEYS)
        more = pruned.more and not self._archiving_outcomes
        self._prune_due_s = now_s + (PRUNE_AGAIN_S if more else TIDY_EVERY_S)

    def _try_again(self) -> None:
        """Try subjects that were set aside again. They are read again, because they may have changed."""
        subjects = tuple(self.state.agenda.set_aside)
        self.state.agenda.set_aside.clear()
        for subject in subjects:
            match subject.kind:
                case "pipeline" | "deadline":
                    self._read_pipeline(subject.pipeline)
                case "backfill":
                    self._read_backfill(subject.backfill)
                case "command":
                    self.state.commands.line_up(subject.command)
                case "term" | "abdication" | "schema" | "alert" | "fresh" | "hold":
                    self.state.agenda.add(subject)
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
                    self._read_run(subject.run)
                case "worker":
                    pass  # its rule cannot fail

    def idle_s(self) -> float | None:
        """Seconds until there is work without news; None: only news bring work."""
        now = self._now()
        idle_s = self.state.agenda.idle_s(now)
        moments_s = (next(iter(self._young.values()), None), self.state.tasks.looks.next_due_s())
        waits = [moment_s - now.elapsed_s for moment_s in moments_s if moment_s is not None]
        return min([*waits, *([] if idle_s is None else [idle_s])], default=None)

    def _now(self) -> Instant:
        return Instant(self._clock.now(), self._clock.elapsed_s())
