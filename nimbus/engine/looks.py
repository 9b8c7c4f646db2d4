"""Data that tasks wait for: the last result of each look-up, and the time of the next. Engine thread only.

Nothing here is stored: after a failover the next leader finds the waiting tasks, and starts to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heappop, heappush
from itertools import islice
from math import inf

from nimbus.domain.waits import Look, LookReport, Seen
from nimbus.engine.agenda import Instant, Subject

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Longest pause between two look-ups of the same data. The pause doubles each time."""
AT_ONCE = -inf
MOST_REPORTED = 64
LONGEST_REPORTED = 500
"""Limit of a reported address, in characters: the report is part of a registration."""


@dataclass(slots=True)
class _Watched:
    waiters: set[Subject] = field(default_factory=set)
    pause_s: float = FIRST_PAUSE_S
    due_s: float | None = None
    """None: a look-up is under way."""


class Looks:
    """All look-ups of waiting tasks. Equal look-ups of many tasks are done once."""

    def __init__(self) -> None:
        self._missing: dict[Subject, set[Look]] = {}
        """The data that each waiting task still misses."""
        self._watched: dict[Look, _Watched] = {}
        self._heap: list[tuple[float, Look]] = []
        """May contain moments that are no longer valid: `_watched` has the valid ones."""
        self._reports: dict[Look, LookReport] = {}
        """Reports; the latest are at the end."""
        self.changed = False
        """True when reports changed since the last call of `report`."""

    def want(self, subject: Subject, looks: Iterable[Look]) -> None:
        """Register that a task waits for all of `looks`. Safe to repeat."""
        if subject in self._missing:
            return
        self._missing[subject] = set(looks)
        for look in self._missing[subject]:
            if look not in self._watched:
                self._watched[look] = _Watched()
                self._look_at(look, AT_ONCE)
            self._watched[look].waiters.add(subject)

    def forget(self, subject: Subject) -> None:
        """Remove a task that no longer waits."""
        for look in self._missing.pop(subject, ()):
            waiters = self._watched[look].waiters
            waiters.discard(subject)
            if not waiters:
                self._drop(look)

    def missing(self, subject: Subject) -> list[Look]:
        """The data of a task that no look-up has found yet."""
        return sorted(self._missing.get(subject, ()))

    def seen(self, look: Look, seen: Seen, now: Instant) -> list[Subject]:
        """Apply the result of a look-up. Return the tasks that now have all their data."""
        watched = self._watched.get(look)
        if watched is None:
            return []  # nobody waits for it any more
        self.changed = True
        if not seen.there:
            next_at = now.wall + timedelta(seconds=watched.pause_s)
            self._reports.pop(look, None)
            self._reports[look] = LookReport(at=now.wall, said=seen.said[:200], next_at=next_at)
            self._look_at(look, now.elapsed_s + watched.pause_s)
            watched.pause_s = min(2 * watched.pause_s, LONGEST_PAUSE_S)
            return []
        for subject in watched.waiters:
            self._missing[subject].discard(look)
        done = [subject for subject in watched.waiters if not self._missing[subject]]
        self._drop(look)
        return sorted(done)

    def take_due(self, now_s: float) -> list[Look]:
        """The look-ups that are due now. Each becomes due again only after its answer."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            moment, look = heappop(self._heap)
            watched = self._watched.get(look)
            if watched is not None and watched.due_s == moment:
                watched.due_s = None
                due.append(look)
        return due

    def next_due_s(self) -> float | None:
        """The earliest time at which a look-up may be due."""
        return self._heap[0][0] if self._heap else None

    def report(self) -> Mapping[str, LookReport]:
        """The latest look-ups that found no data, by name, MOST_REPORTED at most."""
        self.changed = False
        return dict(islice(self._short(), MOST_REPORTED))

    def _short(self) -> Iterator[tuple[str, LookReport]]:
        for look, report in reversed(self._reports.items()):
            if len(look.name) <= LONGEST_REPORTED:
                yield look.name, report

    def _look_at(self, look: Look, due_s: float) -> None:
        self._watched[look].due_s = due_s
        heappush(self._heap, (due_s, look))

    def _drop(self, look: Look) -> None:
        del self._watched[look]
        if self._reports.pop(look, None) is not None:
            self.changed = True
