"""Checks continuously whether two candidates lead at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Overlaps:
    """Watches a set of candidates, and records when two lead at once."""

    def __init__(self, leads: Callable[[], list[str]]) -> None:
        self.seen: list[list[str]] = []
        self._leads = leads
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._done.wait(0.002):
            names = self._leads()
            if len(names) > 1 and len(again := self._leads()) > 1:
                self.seen.append(again)

    def __enter__(self) -> Overlaps:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
