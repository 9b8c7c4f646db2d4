"""Which data tasks wait for, what was seen of it, and when to look again. Engine thread only.

Nothing here is stored: after a failover the next leader finds the waiting tasks, and looks anew.
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
"""Between two looks at the same thing; doubled each time."""
AT_ONCE = -inf
MOST_REPORTED = 64
LONGEST_REPORTED = 500
"""Characters of an address that is reported: the report is part of a registration."""


@dataclass(slots=True)
class _Watched:
    waiters: set[Subject] = field(default_factory=set)
    pause_s: float = FIRST_PAUSE_S
    due_s: float | None = None
    """None: somebody looks at it now."""


class Looks:
    """Each event costs what it touches; equal looks of many tasks are one."""

    def __init__(self) -> None:
        self._missing: dict[Subject, set[Look]] = {}
        """What each waiting task still lacks."""
        self._watched: dict[Look, _Watched] = {}
        self._heap: list[tuple[float, Look]] = []
        """Also holds moments that do not count any more: `_watched` says which do."""
        self._reports: dict[Look, LookReport] = {}
        """Those looked at last are at the end."""
        self.changed = False
        """Since `report` was called."""

    def want(self, subject: Subject, looks: Iterable[Look]) -> None:
        """A task waits for all of `looks`, from now on or already."""
        if subject in self._missing:
            return
        self._missing[subject] = set(looks)
        for look in self._missing[subject]:
            if look not in self._watched:
                self._watched[look] = _Watched()
                self._look_at(look, AT_ONCE)
            self._watched[look].waiters.add(subject)

    def forget(self, subject: Subject) -> None:
        """A task waits no more."""
        for look in self._missing.pop(subject, ()):
            waiters = self._watched[look].waiters
            waiters.discard(subject)
            if not waiters:
                self._drop(look)

    def missing(self, subject: Subject) -> list[Look]:
        """What no look has found yet of what a task waits for."""
        return sorted(self._missing.get(subject, ()))

    def seen(self, look: Look, seen: Seen, now: Instant) -> list[Subject]:
        """Take in a look. The tasks that lack nothing any more."""
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
        """The looks that are due now. Each is due again only after its answer."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            moment, look = heappop(self._heap)
            watched = self._watched.get(look)
            if watched is not None and watched.due_s == moment:
                watched.due_s = None
                due.append(look)
        return due

    def next_due_s(self) -> float | None:
        """The earliest moment at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def report(self) -> Mapping[str, LookReport]:
        """The last looks that found nothing, the latest of them, by name."""
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
