"""The runs of the last 24 hours: ZooKeeper has a finished run for an hour only, so others come from history.

A finished run does not change, so each is read once: after a page was answered, at most once a minute and a
bounded number at a time. Only the first page waits, for the failed runs. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from operator import attrgetter
from threading import Lock
from typing import cast

import structlog

from nimbus.api.seen import SeenReader
from nimbus.api.services import if_available
from nimbus.domain.errors import NimbusError
from nimbus.domain.runs.run import ListedRun, Run, RunState
from nimbus.ports import ClusterReader, History

DAY = timedelta(days=1)
_PAUSE, _HISTORY_PAUSE = timedelta(minutes=1), timedelta(minutes=20)
"""Between two looks, and between two looks at history: less than runs stay in ZooKeeper."""
_READ, _FAILED = 300, 20
"""Limit of runs that one look reads at each place, and of failed runs that the first page waits for."""
_NEVER = datetime(1, 1, 1, tzinfo=UTC)
_log = structlog.stdlib.get_logger(__name__)

Spans = list[tuple[datetime, datetime | None]]


class Day:
    """What is known of the last day's runs, for every principal: show only what one may see."""

    def __init__(self, reader: ClusterReader, history: History) -> None:
        self._reader, self._history, self._looking = reader, history, Lock()
        self._looked = self._looked_far = _NEVER
        self._spans: dict[str, Spans] = {}
        self._changes: list[tuple[datetime, int]] = []
        self.finished: Mapping[str, ListedRun] = {}
        self.failed: Mapping[str, Run] = {}
        self.since: datetime | None = None
        """The creation of the oldest run that was read; None: history was not read yet."""

    def seen(self, reader: ClusterReader) -> Mapping[str, ListedRun]:
        """The runs that the principal may see, with those of ZooKeeper. `reader`: as of `seen_services`."""
        return {**cast("SeenReader", reader).listed(self.finished), **reader.run_list()}

    def begin(self, now: datetime) -> None:
        """Read the newest failed runs, unless history was looked at before."""
        if self._looked_far is _NEVER and self._looking.acquire(blocking=False):
            try:
                self._keep(now, self._past(now, _FAILED, RunState.FAILED)[0])
            finally:
                self._looking.release()

    def look(self, now: datetime) -> None:
        """Read what is new, if the last look was long enough ago."""
        if now - self._looked < _PAUSE or not self._looking.acquire(blocking=False):
            return
        try:
            self._looked, listed = now, self._reader.run_list().values()
            new = (run for run in listed if run.id not in self._spans or not run.state.is_final)
            newest = nlargest(_READ, new, key=attrgetter("created_at"))
            runs = list(self._reader.runs(run.id for run in newest).values())
            if now - self._looked_far >= _HISTORY_PAUSE:
                past, self.since = self._past(now, _READ, None)
                runs += past
            self._keep(now, runs)
        except NimbusError as exc:
            if not exc.retryable:
                raise
            _log.warning("day_not_read", error=str(exc))
        finally:
            self._looking.release()

    def _past(self, now: datetime, limit: int, state: RunState | None) -> tuple[list[Run], datetime]:
        """Runs of history, and since when they are all; none while storage does not answer."""
        self._looked_far = now if state is None else self._looked_far
        page = if_available(lambda: self._history.recent(None, limit, state=state, since=now - DAY))
        if page is None:
            return [], now - timedelta(hours=1)
        oldest = min((run.created_at for run in page.runs), default=now)
        return list(page.runs), now - DAY if page.more_after is None else oldest

    def _keep(self, now: datetime, runs: Iterable[Run]) -> None:
        finished, failed = dict(self.finished), dict(self.failed)
        spans = {name: of for name, of in self._spans.items() if name in finished}  # live ones are read anew
        for run in runs:
            spans[run.id] = _spans(run)
            if run.state.is_final:
                finished[run.id] = run.listed()
            if run.state is RunState.FAILED:
                failed[run.id] = run
        old = [name for name, run in finished.items() if (run.finished_at or run.created_at) < now - DAY]
        for name in old:
            del finished[name]
            failed.pop(name, None)
            spans.pop(name, None)
        self.failed = {
            run.id: run for run in nlargest(2 * _FAILED, failed.values(), key=attrgetter("created_at"))
        }
        self.finished, self._spans = finished, spans
        opened = [(start, 1) for of in spans.values() for start, _ in of]
        self._changes = sorted(
            opened + [(end, -1) for of in spans.values() for _, end in of if end is not None]
        )

    def load(self, begin: datetime, step: timedelta, count: int) -> list[int]:
        """The most attempts that were open at once, in each of `count` steps from `begin` on."""
        most, now_open, at = [0] * count, 0, 0
        for moment, change in self._changes:
            if (part := (moment - begin) // step) >= count:
                break
            while at <= part:  # those that are open at its beginning
                most[at] = now_open
                at += 1
            now_open += change
            if part >= 0:
                most[part] = max(most[part], now_open)
        return most[:at] + [now_open] * (count - at)


def _spans(run: Run) -> Spans:
    """When attempts were open."""
    return [(attempt.opened_at, attempt.ended_at) for task in run.tasks.values() for attempt in task.attempts]
