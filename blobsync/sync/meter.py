"""How many bytes came. Thread-safe; read without waiting."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """How much of the wanted releases is here, as far as their layouts are known.

    Attributes:
        done_bytes: Of objects (packs and large files) that are here or under way.
        total_bytes: Of all their objects, as stored: packs are compressed.
        done_objects: Objects that are here.
        total_objects: All of them.
        fetched_bytes: That came over the network since the start, wanted or not, good or bad.
        fetched_objects: That came whole and good since the start.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    done_objects: int = 0
    total_objects: int = 0
    fetched_bytes: int = 0
    fetched_objects: int = 0


class Meter:
    """Counts what comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial: dict[str, int] = {}
        self._partial_bytes = 0
        self.fetched_bytes = 0
        self.fetched_objects = 0

    @property
    def partial_bytes(self) -> int:
        """Of objects that have begun to arrive and are not complete; what was resumed included."""
        return self._partial_bytes

    def begin(self, name: str, resumed_bytes: int) -> None:
        """An object begins to arrive, or goes on to."""
        with self._lock:
            self._partial_bytes += resumed_bytes - self._partial.get(name, 0)
            self._partial[name] = resumed_bytes

    def came(self, name: str, size_bytes: int) -> None:
        """Some of it came; negative: that is to come again."""
        with self._lock:
            self._partial[name] = self._partial.get(name, 0) + size_bytes
            self._partial_bytes += size_bytes
            self.fetched_bytes += max(0, size_bytes)

    def end(self, name: str, *, good: bool) -> None:
        """It is here, or nobody receives it any more."""
        with self._lock:
            self._partial_bytes -= self._partial.pop(name, 0)
            self.fetched_objects += good
