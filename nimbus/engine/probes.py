"""Data that tasks wait for: the last result of each probe, and the time of the next. Engine thread only.

Nothing here is stored: after a failover the next leader finds the waiting tasks, and starts to probe again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from math import inf

from nimbus.domain.starts.waits import DataProbe, LastProbe, ProbeResult
from nimbus.engine.work_queue import Instant, Key

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Longest pause between two probes of the same data. The pause doubles each time."""
AT_ONCE = -inf
MAX_REPORTED = 64
LAST_PROBE_S = 60.0
"""How long the answer of the probe at a task's timeout is waited for."""
LONGEST_REPORTED = 500
"""Limit of a reported address, in characters: the report is part of a registration."""


@dataclass(slots=True)
class _Watched:
    waiters: set[Key] = field(default_factory=set)
    pause_s: float = FIRST_PAUSE_S
    due_s: float | None = None
    """None: a probe is under way."""
    began_s: float | None = None
    """When the last probe began. None: an answer is of one that an earlier term began."""
    probed_at: datetime | None = None
    """When the last probe began that has an answer."""


class Probes:
    """All probes of waiting tasks. Equal probes of many tasks are done once."""

    def __init__(self) -> None:
        self._missing: dict[Key, set[DataProbe]] = {}
        """The data that each waiting task still misses."""
        self._until: dict[Key, datetime] = {}
        """When tasks give up. Their data are probed once more then."""
        self._watched: dict[DataProbe, _Watched] = {}
        self._heap: list[tuple[float, DataProbe]] = []
        """May contain moments that are no longer valid: `_watched` has the valid ones."""
        self._reports: dict[DataProbe, LastProbe] = {}
        """Reports; the latest are at the end."""
        self.changed = False
        """True when reports changed since the last call of `report`."""

    def want(self, key: Key, probes: Iterable[DataProbe], until: datetime | None = None) -> None:
        """Register that a task waits for all of `probes`, and gives up at `until`. Safe to repeat."""
        if key in self._missing:
            return
        if until is not None:
            self._until[key] = until
        self._missing[key] = set(probes)
        for probe in self._missing[key]:
            if probe not in self._watched:
                self._watched[probe] = _Watched()
                self._plan(probe, AT_ONCE)
            self._watched[probe].waiters.add(key)

    def forget(self, key: Key) -> None:
        """Remove a task that no longer waits."""
        self._until.pop(key, None)
        for probe in self._missing.pop(key, ()):
            waiters = self._watched[probe].waiters
            waiters.discard(key)
            if not waiters:
                self._drop(probe)

    def missing(self, key: Key) -> list[DataProbe]:
        """The data of a task that no probe has found yet."""
        return sorted(self._missing.get(key, ()))

    def last_probe_s(self, key: Key, moment: datetime, now_s: float) -> float | None:
        """Until when a task that gives up at `moment`, which has passed, waits for the last probes.

        None: all data that it misses were probed since, or there was no answer in time.
        """
        missing = (self._watched[probe] for probe in self._missing.get(key, ()))
        late = [wait for wait in missing if wait.probed_at is None or wait.probed_at < moment]
        begun = (
            now_s if probe.due_s is not None or probe.began_s is None else probe.began_s for probe in late
        )
        ends = [began_s + LAST_PROBE_S for began_s in begun]
        return max((end for end in ends if end > now_s), default=None)

    def seen(self, probe: DataProbe, seen: ProbeResult, now: Instant) -> list[Key]:
        """Apply the result of a probe. Return the tasks that now have all their data, or have given up."""
        watched = self._watched.get(probe)
        if watched is None:
            return []  # nobody waits for it any more
        self.changed = True
        if not seen.there:
            return self._not_there(probe, watched, seen, now)
        for key in watched.waiters:
            self._missing[key].discard(probe)
        done = [key for key in watched.waiters if not self._missing[key]]
        self._drop(probe)
        return sorted(done)

    def _not_there(self, probe: DataProbe, watched: _Watched, seen: ProbeResult, now: Instant) -> list[Key]:
        """Plan the next probe, at the latest when a task gives up. Return the tasks that have given up."""
        if watched.began_s is not None:
            watched.probed_at = now.wall - timedelta(seconds=max(0.0, now.elapsed_s - watched.began_s))
        over, pause_s = [], watched.pause_s
        for waiter in watched.waiters & self._until.keys():
            if watched.probed_at is not None and self._until[waiter] <= watched.probed_at:
                over.append(waiter)
            else:
                pause_s = min(pause_s, max(0.0, (self._until[waiter] - now.wall).total_seconds()))
        next_at = now.wall + timedelta(seconds=pause_s)
        self._reports.pop(probe, None)
        self._reports[probe] = LastProbe(at=now.wall, said=seen.said[:200], next_at=next_at)
        self._plan(probe, now.elapsed_s + pause_s)
        watched.pause_s = min(2 * watched.pause_s, LONGEST_PAUSE_S)
        return sorted(over)

    def take_due(self, now_s: float) -> list[DataProbe]:
        """The probes that are due now. Each becomes due again only after its answer."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            moment, probe = heappop(self._heap)
            watched = self._watched.get(probe)
            if watched is not None and watched.due_s == moment:
                watched.due_s, watched.began_s = None, now_s
                due.append(probe)
        return due

    def next_due_s(self) -> float | None:
        """The earliest time at which a probe may be due."""
        return self._heap[0][0] if self._heap else None

    def report(self) -> Mapping[str, LastProbe]:
        """The latest probes that found no data, by name, MAX_REPORTED at most."""
        self.changed = False
        return dict(islice(self._short(), MAX_REPORTED))

    def _short(self) -> Iterator[tuple[str, LastProbe]]:
        for probe, report in reversed(self._reports.items()):
            if len(probe.name) <= LONGEST_REPORTED:
                yield probe.name, report

    def _plan(self, probe: DataProbe, due_s: float) -> None:
        self._watched[probe].due_s = due_s
        heappush(self._heap, (due_s, probe))

    def _drop(self, probe: DataProbe) -> None:
        del self._watched[probe]
        if self._reports.pop(probe, None) is not None:
            self.changed = True
