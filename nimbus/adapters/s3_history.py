"""Finished runs in S3: one object for each run, and small index objects that list newest first.

Keys, below the storage prefix:
    history/runs/<run>.json                      the run
    history/results/<run>.json                   results of its tasks, by task; missing if there are none
    history/recent/<inverted time>~<run>         no content; its name is the index
    history/pipelines/<pipeline>/<inverted time>~<run>
    history/<state>/recent/..., history/<state>/pipelines/...    the same for `failed` and `stopped` runs
    history/refusals/<inverted time>~<command>.json   refused commands that were moved out of ZooKeeper
    together history/commands/<inverted time>~<command>.json   the same for accepted commands
    history/terms/<inverted epoch>.json          a term of leadership that was moved out of ZooKeeper
    history/datasets/<dataset>/<partition>~<inverted number>.json   a version; partition `_whole` is all
    history/published/<dataset>/<inverted sequence>~<partition>~<number>   no content; lists versions by age
    history/reused/<run>/<later run>             no content: the later run reuses outputs of the run
Those of purges: `nimbus.adapters.s3_purges`.
The time is inverted (9999999999 minus epoch seconds), and so are the epoch of a term, and number and sequence
of a version, because S3 lists keys in ascending order only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from types import MappingProxyType

from blobsync import ObjectStore, valid_objects
from nimbus import records
from nimbus.adapters.s3_purges import S3Purges
from nimbus.adapters.s3_records import (
    ACCEPTED,
    INDEX_MARK,
    INDEXED_STATES,
    REFUSED,
    Ascending,
    after,
    index_of,
    note_key,
    or_unavailable,
    read_record,
    readable_places,
    readable_record,
    results_key,
    reused_key,
    run_key,
)
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.data.datasets import versions_of
from nimbus.domain.data.outputs import Results, TaskResults
from nimbus.domain.data.publications import Table, Version, interval_in, moment_text
from nimbus.domain.ids import CommandId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.purge import KeptReason, Purged, PurgeOrder, RunNote, reused_runs
from nimbus.domain.runs.run import LATEST_S, Run, RunPlace, RunState, place, place_at
from nimbus.ports import RecentRuns

MAX_OUTCOME_OBJECTS = 50
"""Most objects of each kind that one list of commands reads, with up to 500 outcomes each."""


MAX_SCANNED, READERS = 1000, 8
"""Of one list of runs: most names that it reads, and threads that read records at the same time."""
MAX_OF_PARTITION = 100
"""How many of its newest versions are searched for those that repeat one."""
TERMS = "history/terms/"
DATASETS = "history/datasets/"
PUBLISHED = "history/published/"
WHOLE = "_whole"
"""Stands for the partition of a dataset that is not divided. No key begins so."""
_FIRST = datetime(1, 1, 2, tzinfo=UTC)
"""About the first moment of the calendar."""
_LATEST_NUMBER = (1 << 63) - 1
_MARK = re.compile(r"([0-9]{19})~([^~]+)~([0-9]{1,19})")


def version_key(dataset: DatasetName, version: Version) -> str:
    """The key of a version. Of each partition, the newest comes first."""
    return _version_key(dataset, version.partition, version.number)


def _version_key(dataset: DatasetName, partition: str, number: int) -> str:
    return f"{DATASETS}{dataset}/{partition or WHOLE}~{_LATEST_NUMBER - number:019d}.json"


def _mark_key(dataset: DatasetName, version: Version) -> str:
    place = f"{version.partition or WHOLE}~{version.number}"
    return f"{PUBLISHED}{dataset}/{_LATEST_NUMBER - version.sequence:019d}~{place}"


def _term_key(epoch: int) -> str:
    return f"{TERMS}{LATEST_S - epoch:010d}.json"


class S3History:
    """See `nimbus.ports.History`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._purges = S3Purges(store)

    def store(self, run: Run) -> None:
        """Store a finished run. The index is written last, so that listed runs can be read."""
        name = str(place(run))
        with or_unavailable(f"run {run.id} could not be stored in history"):
            for earlier in sorted(reused_runs(run)):
                self._store.write(reused_key(earlier, run.id), INDEX_MARK)
            for publication, version in versions_of(run):
                self._store_version(publication.dataset, version)
            self._store.write(run_key(run.id), records.RUN.encode(run))
            for state in (*INDEXED_STATES, None):
                if state in (run.state, None):
                    self._store.write(f"{index_of(run.pipeline, state)}{name}", INDEX_MARK)
                    self._store.write(f"{index_of(None, state)}{name}", INDEX_MARK)

    def read(self, run: RunId) -> Run | None:
        with or_unavailable(f"history of run {run} cannot be read"):
            return read_record(self._store, run_key(run), records.RUN)

    def version(self, dataset: DatasetName, partition: str) -> Version | None:
        return next(iter(self.versions(dataset, 1, partition)), None)

    def store_versions(self, dataset: DatasetName, versions: Iterable[Version]) -> None:
        with or_unavailable(f"versions of dataset {dataset} could not be stored in history"):
            for version in versions:
                self._store_version(dataset, version)

    def _store_version(self, dataset: DatasetName, version: Version) -> None:
        self._store.write(version_key(dataset, version), records.VERSION.encode(version))
        self._store.write(_mark_key(dataset, version), INDEX_MARK)

    def forget_dataset(self, dataset: DatasetName, before: int) -> None:
        published, last = f"{PUBLISHED}{dataset}/", f"{_LATEST_NUMBER - before:019d}~~"
        with or_unavailable(f"versions of dataset {dataset} could not be removed"):
            marks = valid_objects(self._store, published, f"{published}{last}")
            self._store.delete_many(info.key for info in marks)
            versions = valid_objects(self._store, f"{DATASETS}{dataset}/")
            self._store.delete_many(info.key for info in versions if info.key.rpartition("~")[2] > last)

    def kept_version(self, run: Run, now: datetime) -> KeptReason | None:
        kept = set[KeptReason]()
        for publication, version in versions_of(run):
            newest = self.version(publication.dataset, version.partition)
            # The newest one: a withdrawal has perhaps published the run's version again, and later.
            if newest is None or newest.may_go(now):
                continue
            if newest.run == run.id:
                return KeptReason.PUBLISHED
            if newest.keep_versions > 1:
                stored = self.versions(publication.dataset, newest.keep_versions, version.partition)
                kept |= {KeptReason.VERSIONS for other in stored if other.run == run.id}
        return next(iter(kept), None)

    def forget_versions(self, run: Run) -> None:
        with or_unavailable(f"versions of run {run.id} could not be removed"):
            for publication, version in versions_of(run):
                stored = self.versions(publication.dataset, MAX_OF_PARTITION, version.partition)
                again = [other for other in stored if other.run == run.id]  # by withdrawals of later versions
                for key in (_mark_key, version_key):
                    self._store.delete_many(key(publication.dataset, other) for other in (version, *again))

    def newest_versions(
        self, dataset: DatasetName, interval: DataInterval | None, longest: timedelta
    ) -> Iterator[Version]:
        prefix, seen = f"{DATASETS}{dataset}/", ""
        begin = None
        if interval is not None and longest < interval.start - _FIRST:
            begin = f"{prefix}{moment_text(interval.start - longest)}"
        end = None if interval is None else moment_text(interval.end + timedelta(seconds=1))
        with or_unavailable(f"versions of dataset {dataset} cannot be read"):
            for info in valid_objects(self._store, prefix, begin):
                partition, _, _ = info.key.removeprefix(prefix).partition("~")
                if end is not None and partition > end:
                    return
                span = interval_in(partition)
                beside = interval is not None and (span is None or span.end <= interval.start)
                if partition == seen or beside:
                    continue
                seen = partition
                if (version := read_record(self._store, info.key, records.VERSION)) is not None:
                    yield version

    def newer_versions(self, dataset: DatasetName, sequence: int) -> Iterator[Version]:
        newest: dict[str, tuple[int, int]] = {}
        with or_unavailable(f"versions of dataset {dataset} cannot be read"):
            for published, partition, number in self._marks(dataset):
                if published <= sequence:
                    break
                newest[partition] = max(newest.get(partition, (0, 0)), (number, published))
        for partition, (_, published) in sorted(newest.items(), key=lambda item: item[1][1]):
            version = self.version(dataset, partition)
            # Else a run published late, after the newest version, or another version is there by now.
            if version is not None and version.sequence == published:
                yield version

    def _marks(self, dataset: DatasetName, before: int | None = None) -> Iterator[tuple[int, str, int]]:
        """Sequence, partition and number of all versions, or of those before one; the last one first."""
        prefix = f"{PUBLISHED}{dataset}/"
        begin = None if before is None else f"{prefix}{_LATEST_NUMBER - before:019d}~~"
        for info in valid_objects(self._store, prefix, begin):
            if mark := _MARK.fullmatch(info.key.removeprefix(prefix)):
                partition = "" if mark[2] == WHOLE else mark[2]
                yield _LATEST_NUMBER - int(mark[1]), partition, int(mark[3])

    def versions(
        self,
        dataset: DatasetName,
        limit: int,
        partition: str | None = None,
        before: int | None = None,
    ) -> tuple[Version, ...]:
        with or_unavailable(f"versions of dataset {dataset} cannot be read"):
            if partition is None:
                marks = islice(self._marks(dataset, before), limit)
                keys = [_version_key(dataset, of, number) for _, of, number in marks]
            else:
                prefix = f"{DATASETS}{dataset}/{partition or WHOLE}~"
                begin = None if before is None else _version_key(dataset, partition, before)
                keys = [info.key for info in islice(valid_objects(self._store, prefix, begin), limit)]
            read = [readable_record(self._store, key, records.VERSION) for key in keys]
        return tuple(version for version in read if version is not None)

    def store_results(
        self, run: RunId, results: Results, tables: Mapping[TaskName, Table] = MappingProxyType({})
    ) -> None:
        given = TaskResults(results=results, tables=dict(tables))
        with or_unavailable(f"results of run {run} could not be stored"):
            self._store.write(results_key(run), records.RESULTS.encode(given))

    def given(self, run: RunId) -> TaskResults:
        with or_unavailable(f"results of run {run} cannot be read"):
            return read_record(self._store, results_key(run), records.RESULTS) or TaskResults(results={})

    def recent(
        self,
        pipeline: PipelineName | None,
        limit: int,
        after: RunPlace | None = None,
        *,
        state: RunState | None = None,
        since: datetime | None = None,
    ) -> RecentRuns:
        scanned: list[str] = []
        with or_unavailable("history cannot be listed"):
            names = self._names(pipeline, state if state in INDEXED_STATES else None, after)
            if since is not None:
                last = str(place_at(since, "~"))
                names = takewhile(lambda name: name <= last, names)
            succeeded = state is RunState.SUCCEEDED
            others = [Ascending(self._names(pipeline, ended, after)) for ended in INDEXED_STATES if succeeded]

            def fitting() -> Iterator[str]:
                for name in islice(names, MAX_SCANNED):
                    scanned.append(name)
                    if not any(other.has(name) for other in others):
                        yield name

            entries = list(islice(fitting(), limit + 1))
            with ThreadPoolExecutor(READERS, "nimbus-history") as pool:
                keys = (run_key(RunId(entry.id)) for entry in readable_places(entries[:limit]))
                runs = list(pool.map(lambda key: readable_record(self._store, key, records.RUN), keys))
        passed = entries[:limit] if len(entries) > limit else scanned if len(scanned) == MAX_SCANNED else []
        more_after = max(readable_places(passed), default=None)
        return RecentRuns(tuple(run for run in runs if run is not None), more_after)

    def _names(
        self, pipeline: PipelineName | None, state: RunState | None, after: RunPlace | None
    ) -> Iterator[str]:
        prefix = index_of(pipeline, state)
        begin = None if after is None else f"{prefix}{after}"
        return (info.key.removeprefix(prefix) for info in valid_objects(self._store, prefix, begin))

    def store_outcomes(self, outcomes: Sequence[CommandOutcome]) -> None:
        """Store outcomes in one object for each kind, named by the newest time and the first command."""
        refused = tuple(outcome for outcome in outcomes if not outcome.accepted)
        accepted = tuple(outcome for outcome in outcomes if outcome.accepted)
        self._store_kind(REFUSED, refused, records.OutcomesBody(refusals=refused))
        self._store_kind(ACCEPTED, accepted, records.OutcomesBody(accepted=accepted))

    def _store_kind(self, prefix: str, kept: Sequence[CommandOutcome], body: records.OutcomesBody) -> None:
        if not kept:
            return
        at = int(max(outcome.decided_at for outcome in kept).timestamp())
        key = f"{prefix}{LATEST_S - at:010d}~{min(outcome.command for outcome in kept)}.json"
        with or_unavailable("commands could not be stored in history"):
            self._store.write(key, records.OUTCOMES.encode(body))

    def outcomes(
        self, pipeline: PipelineName | None, limit: int, *, refused: bool = False
    ) -> tuple[CommandOutcome, ...]:
        """Outcomes, newest first. A leader and its successor may have stored the same outcome."""
        outcomes: dict[tuple[datetime, CommandId], CommandOutcome] = {}
        for prefix in (REFUSED,) if refused else (REFUSED, ACCEPTED):
            outcomes |= self._newest(prefix, pipeline, limit)
        return tuple(outcomes[key] for key in sorted(outcomes, reverse=True)[:limit])

    def _newest(
        self, prefix: str, pipeline: PipelineName | None, limit: int
    ) -> dict[tuple[datetime, CommandId], CommandOutcome]:
        """At least the `limit` newest ones of a kind, or all in the newest objects."""
        outcomes: dict[tuple[datetime, CommandId], CommandOutcome] = {}
        with or_unavailable("commands cannot be listed"):
            for info in islice(valid_objects(self._store, prefix), MAX_OUTCOME_OBJECTS):
                if (body := readable_record(self._store, info.key, records.OUTCOMES)) is None:
                    continue
                all_of_it = (*body.refusals, *body.accepted)
                fitting = (outcome for outcome in all_of_it if pipeline in (None, outcome.pipeline))
                outcomes |= {(outcome.decided_at, outcome.command): outcome for outcome in fitting}
                if len(outcomes) >= limit:
                    break
        return outcomes

    def store_terms(self, terms: Sequence[Term]) -> None:
        with or_unavailable("terms could not be stored in history"):
            for term in terms:
                self._store.write(_term_key(term.epoch), records.TERM.encode(term))

    def terms(self, before: int, limit: int) -> tuple[Term, ...]:
        with or_unavailable("terms cannot be read in history"):
            keys = [info.key for info in islice(valid_objects(self._store, TERMS, _term_key(before)), limit)]
            read = [readable_record(self._store, key, records.TERM) for key in keys]
        return tuple(term for term in read if term is not None)

    def created_before(self, when: datetime, pipeline: PipelineName | None) -> Iterator[RunId]:
        prefix = index_of(pipeline)
        with or_unavailable("history cannot be listed"):
            listed = valid_objects(self._store, prefix, after(prefix, when))
            for entry in readable_places(info.key.removeprefix(prefix) for info in listed):
                yield RunId(entry.id)

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        return self._purges.reusers(run)

    def purged(self, run: RunId) -> Purged | None:
        return self._purges.purged(run)

    def note(self, run: RunId) -> RunNote | None:
        with or_unavailable(f"the note about run {run} cannot be read"):
            return read_record(self._store, note_key(run), records.NOTE)

    def put_note(self, note: RunNote) -> None:
        before, key = self.note(note.what.run_id), note_key(note.what.run_id)
        if before is not None and before.at > note.at:
            return  # of a leader that was held up: its successor has stored a later one
        with or_unavailable(f"the note about run {note.what.run_id} could not be stored"):
            self._store.write(key, records.NOTE.encode(note)) if note.what.text else self._store.delete(key)

    def order_purge(self, command: CommandId, order: PurgeOrder) -> None:
        self._purges.order(command, order)
