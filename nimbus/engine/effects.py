"""Effects of decisions: slow work on separate threads, whose outcome is sent to the engine as events.

No pool of threads (docs/threads.md) blocks the engine or another pool. Those of the archive wait for S3
without limit. Alerts, traces and lineage have their own threads, see `nimbus.engine.sending`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

import structlog

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.data.outputs import OutputsNotHereError, Results, committed_results, given
from nimbus.domain.data.publications import Version
from nimbus.domain.data.reads import Lacking, ReadError
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import AttemptId, CommandId, RunId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.parameters import InvalidParametersError
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft, copied, new_run
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.selection import entered
from nimbus.domain.starts.waits import DataProbe, DataSource, ProbeResult
from nimbus.engine import decision as d
from nimbus.engine import events as e
from nimbus.engine.history_lookups import (
    EarlierRuns,
    OpenFile,
    found_versions,
    store_order,
    stored_and_found,
    takes_items,
    with_items,
)
from nimbus.engine.sending import AlertSender, RunExports
from nimbus.engine.state import Built
from nimbus.ports import DefinitionNotHereError, Definitions, History
from nimbus.records import UnreadableRecordError
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 15.0
"""Longest pause between two tries to store runs, while none succeeds."""


PROBES_AT_ONCE = 4
FILES_AT_ONCE = 2
RUNS_AT_ONCE = 8
"""Finished runs that are stored at the same time: each needs at least three writes, one after another."""
PREPARED_AT_ONCE = 4
"""More than one, so that a large release or a costly definition does not hold up the others."""


class ReleasePreparer(Protocol):
    """Brings a release to this disk."""

    def prepare(self, release: ReleaseOf) -> PipelineSpec:
        """Fetch, verify and read a release.

        Raises NimbusError: the release is not available; `code` goes into the command's outcome.
        """


class Effects:
    """Starts effects. `start` may be called from any thread and does not block."""

    def __init__(
        self,
        *,
        read_run: Callable[[RunId], Run | None],
        read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
        history: History,
        preparer: ReleasePreparer,
        definitions: Definitions,
        renderer: Templates,
        prepare_run: Callable[[Run], None],
        open_file: OpenFile,
        probe: Callable[[DataProbe], ProbeResult],
        sender: AlertSender,
        exports: RunExports | None = None,
        resign: Callable[[str, str], None],
        enqueue: Callable[[e.Event], None],
    ) -> None:
        self._read_run = read_run
        self._read_slots = read_slots
        self._history = history
        self._earlier = EarlierRuns(read_run, read_slots, history)
        self._preparer = preparer
        self._definitions = definitions
        self._renderer = renderer
        self._prepare_run = prepare_run
        """Called with each new run, so that its creation takes the engine's thread less time."""
        self._open_file = open_file
        self._probe = probe
        self._probing: set[DataProbe] = set()
        """Probes that are queued or under way. Single calls of a set are atomic."""
        self._sender = sender
        self._exports = exports
        self._resign = resign
        self._enqueue = enqueue
        self._stopping = threading.Event()
        self._failures = 0
        """Failed tries of the archive since its last success. Two at once may count as one."""
        self._pools: list[ThreadPoolExecutor] = []
        self._archive_runs = self._pool("archive-runs", RUNS_AT_ONCE)
        self._archive = self._pool("archive")
        self._prepare = self._pool("prepare", PREPARED_AT_ONCE)
        self._build = self._pool("build")
        self._render = self._pool("render")
        self._resignation = self._pool("resign")
        self._probe_pool = self._pool("probe", PROBES_AT_ONCE)
        self._file_pool = self._pool("probe-files", FILES_AT_ONCE)
        """A separate pool: a shared folder whose server is down can block its threads for long."""

    def _pool(self, name: str, threads: int = 1) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(threads, thread_name_prefix=f"nimbus-{name}")
        self._pools.append(pool)
        return pool

    def start(self, effect: d.Effect) -> None:  # noqa: C901 - one branch for each kind of effect
        """Start one effect."""
        if self._stopping.is_set():
            return
        match effect:
            case d.ArchiveRun(run_id):
                self._submit(self._archive_runs, self._store, run_id)
            case d.ArchiveOutcomes(outcomes):
                self._submit(self._archive, self._store_outcomes, outcomes)
            case d.ArchiveTerms(terms):
                self._submit(self._archive, self._store_terms, terms)
            case d.StorePurge() | d.StoreVersions():
                self._submit(self._archive, self._store_for_command, effect)
            case d.PrepareRelease(release):
                self._submit(self._prepare, self._bring, release)
            case d.BuildRun(draft=draft) if draft.may_exist:
                first = partial(self._earlier.check_none, draft.id)
                self._submit(self._probe_pool, partial(self._make_after, first), effect)
            case d.BuildRun():
                self._submit(self._build, self._make, effect)
            case d.RenderTask():
                self._submit(self._render, self._make_texts, effect)
            case d.FindVersions():
                self._submit(self._probe_pool, self._find_versions, effect)
            case d.ProbeData(probe):
                self._submit_probe(probe)
            case d.ResignLeadership(reason, to):
                self._submit_resignation(reason, to)
            case d.SendAlert(alert):
                self._sender.start(alert)
            case _:
                assert_never(effect)

    def close(self) -> None:
        """Drop waiting effects. The next leader archives the runs that are not archived yet."""
        self._stopping.set()
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._sender.close()
        if self._exports is not None:
            self._exports.close()

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[..., None], about: object) -> None:
        try:
            pool.submit(work, about)
        except RuntimeError:  # closed meanwhile
            _log.info("effect_left", about=type(about).__name__)

    def _submit_probe(self, probe: DataProbe) -> None:
        if probe not in self._probing:  # else an earlier term started it; the answer serves this term, too
            self._probing.add(probe)
            pool = self._file_pool if probe.source is DataSource.FILE else self._probe_pool
            self._submit(pool, self._probe_once, probe)

    def _submit_resignation(self, reason: str, to: str) -> None:
        """Resign. Naming a successor calls ZooKeeper, so it gets a thread."""
        if to:
            self._submit(self._resignation, self._hand_over, (reason, to))
        else:
            self._resign(reason, to)

    def _hand_over(self, asked: tuple[str, str]) -> None:
        try:
            self._resign(*asked)
        except Exception:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("resignation_failed")

    def _store(self, run_id: RunId) -> None:
        """Store a run. If that fails, put it at the end of the queue, so that it does not block others."""
        try:
            run = self._read_run(run_id)
            if run is not None:  # else it was removed by hand
                # An earlier leader may have stored it, and removed some of its attempts.
                reports = given(run, self._read_slots, self._history.given)
                if reports.results or reports.tables:
                    self._history.store_results(run_id, reports.results, reports.tables)
                self._history.store(run)
        except UnreadableRecordError:
            _log.exception("run_archive_failed", run=run_id)
        except NimbusError as exc:
            self._pause("run_archive_delayed", exc, run=run_id)
            self._submit(self._archive_runs, self._store, run_id)
        except Exception:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("run_archive_failed", run=run_id)  # it stays in ZooKeeper, for the next leader
        else:
            self._failures = 0
            archived = partial(self._enqueue, e.RunArchived(run_id))
            if run is None or self._exports is None:
                archived()
            else:  # the record stays in ZooKeeper until then, so that the next leader sends it
                self._exports.finish(run, archived)

    def _store_outcomes(self, outcomes: tuple[CommandOutcome, ...]) -> None:
        stored: tuple[CommandId, ...] = ()
        try:
            self._history.store_outcomes(outcomes)
        except NimbusError as exc:
            self._pause("outcomes_archive_delayed", exc)
            self._submit(self._archive, self._store_outcomes, outcomes)
            return
        except Exception:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("outcomes_archive_failed")
        else:
            self._failures = 0
            stored = tuple(outcome.command for outcome in outcomes)
        self._enqueue(e.OutcomesArchived(stored))

    def _store_terms(self, terms: tuple[Term, ...]) -> None:
        try:
            self._history.store_terms(terms)
        except Exception:  # noqa: BLE001 - the terms stay where they are, and the next leader tries again
            _log.exception("terms_archive_failed")
        else:
            self._enqueue(e.TermsArchived(tuple(term.epoch for term in terms)))

    def _store_for_command(self, effect: d.StorePurge | d.StoreVersions) -> None:
        answer: d.Refusal | tuple[Version, ...] | None = None
        try:
            if isinstance(effect, d.StorePurge):
                store_order(self._history, effect.command, effect.order)
            else:
                answer = stored_and_found(effect, self._history)
        except (RefusedError, UnreadableRecordError) as exc:
            answer = d.Refusal(exc.code, str(exc))
        except NimbusError as exc:
            self._pause("command_delayed", exc, command=effect.command)
            self._submit(self._archive, self._store_for_command, effect)
            return
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("command_failed", command=effect.command)
            answer = d.Refusal("internal", f"what the command needs could not be stored: {exc!r}")
        else:
            self._failures = 0
        self._enqueue(e.StoredForCommand(effect.command, answer))

    def _pause(self, event: str, exc: NimbusError, **about: str) -> None:
        """Wait, longer after each failure of the archive."""
        self._failures += 1
        longest_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S)
        pause_s = random.uniform(longest_s / 2, longest_s)  # noqa: S311 - jitter, no secret
        _log.warning(event, **about, error=str(exc), pause_s=round(pause_s, 1))
        self._stopping.wait(pause_s)

    def _probe_once(self, probe: DataProbe) -> None:
        try:
            seen = self._probe(probe)
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("probe_failed", address=probe.name)
            seen = ProbeResult(False, repr(exc))
        self._probing.discard(probe)
        self._enqueue(e.DataSeen(probe, seen))

    def _bring(self, release: ReleaseOf) -> None:
        try:
            result: PipelineSpec | d.Refusal = self._preparer.prepare(release)
        except NimbusError as exc:
            result = d.Refusal(exc.code, str(exc))
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("release_preparation_failed", pipeline=release.pipeline, release=release.digest)
            result = d.Refusal("internal", f"release {release.digest[:12]} could not be prepared: {exc!r}")
        self._enqueue(e.ReleasePrepared(release, result))

    def _make(self, effect: d.BuildRun) -> None:
        draft = effect.draft
        try:
            if draft.selection is not None and draft.selection.is_copy and draft.selection.reuse is not None:
                earlier = self._earlier.find(draft.selection.reuse, draft.pipeline)
                draft = copied(draft, earlier)
                effect = replace(effect, draft=draft)
            result: Run | d.Refusal = self._built(effect)
        except (InvalidParametersError, RefusedError, TemplateError) as exc:
            result = d.Refusal(exc.code, str(exc))
        except DefinitionNotHereError as exc:
            if effect.parent is None and draft.selection is None:  # an active release: the sync fetches it
                self._enqueue(e.BuildingFailed(effect.key, draft, exc))
            else:
                # That of a child run or of a rerun, which may differ from the active one.
                first = partial(self._preparer.prepare, ReleaseOf(draft.pipeline, draft.release))
                self._submit(self._prepare, partial(self._make_after, first), effect)
            return
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            self._enqueue(e.BuildingFailed(effect.key, draft, exc))
            return
        self._enqueue(e.RunBuilt(effect.key, Built(draft, result)))

    def _built(self, effect: d.BuildRun) -> Run:
        draft = effect.draft
        spec = self._definitions.definition(ReleaseOf(draft.pipeline, draft.release))
        if effect.parent is not None and draft.parent is not None:
            reads = effect.parent.tasks[draft.parent.task].spec.reads
            results = committed_results(effect.parent, reads, self._read_slots)
            given = self._renderer.child_parameters(effect.parent, draft.parent, results)
            draft = replace(draft, parameters=given)
        run = self._with_selection(new_run(spec, draft), draft)
        run = lifecycle.begin(self._renderer.render(run), draft.asked_at)
        self._prepare_run(run)
        return run

    def _make_after(self, first: Callable[[], object], effect: d.BuildRun) -> None:
        """Build a run after a call that waits for storage, for which the thread of builds must not wait."""
        try:
            first()
        except RefusedError as exc:
            self._enqueue(e.RunBuilt(effect.key, Built(effect.draft, d.Refusal(exc.code, str(exc)))))
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            self._enqueue(e.BuildingFailed(effect.key, effect.draft, exc))
        else:
            self._submit(self._build, self._make, effect)

    def _with_selection(self, run: Run, draft: Draft) -> Run:
        if draft.selection is None:
            return run
        selection, earlier = draft.selection, None
        results: Results = {}
        if selection.reuse is not None:
            earlier = self._earlier.find(selection.reuse, run.pipeline)
            results = self._earlier.results(earlier)
        made = entered(run, selection, earlier, results, by=draft.submitted_by, now=draft.asked_at)
        if earlier is not None:
            self._earlier.check_outputs(earlier, made)
        return made

    def _find_versions(self, effect: d.FindVersions) -> None:
        try:
            result: Mapping[str, tuple[Version, ...]] | d.Refusal | Lacking
            result = found_versions(effect.asked, self._history, partial(self._earlier.parts, effect.run))
        except (ReadError, RefusedError) as exc:
            result = d.Refusal(exc.code, str(exc))
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            self._enqueue(e.FindingFailed(effect.run.id, effect.task, exc))
            return
        self._enqueue(e.VersionsFound(effect.run.id, effect.task, result))

    def _make_texts(self, effect: d.RenderTask) -> None:
        run, name = effect.run, effect.task
        try:
            read = committed_results(run, run.tasks[name].spec.reads, self._read_slots)
            result: TaskSpec | d.Refusal = self._renderer.render_task(run, name, read)
        except TemplateError as exc:
            result = d.Refusal(exc.code, str(exc))
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            self._enqueue(e.RenderingFailed(run.id, name, exc))
            return
        if isinstance(result, TaskSpec) and takes_items(result):
            self._submit(self._file_pool, self._read_items, (run, result))
        else:
            self._enqueue(e.TaskRendered(run.id, name, result))

    def _read_items(self, asked: tuple[Run, TaskSpec]) -> None:
        run, spec = asked
        try:
            result: TaskSpec | d.Refusal = with_items(spec, run, self._open_file)
        except (TemplateError, OutputsNotHereError) as exc:
            result = d.Refusal(exc.code, str(exc))
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            self._enqueue(e.RenderingFailed(run.id, spec.name, exc))
            return
        self._enqueue(e.TaskRendered(run.id, spec.name, result))
