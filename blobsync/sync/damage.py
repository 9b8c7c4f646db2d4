"""Objects that the bucket has with wrong bytes: not downloaded again and again by each host.

Such an object stays wrong until it is written again. So it is fetched again when the bucket lists it with
another time or size, when a call of `ensure` waits for it, or after a wait that doubles up to `LONGEST_S`: a
cache on the way may have been the cause. Thread-safe; called on the threads that fetch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from blobsync.bucket.ports import ObjectStore
from blobsync.errors import CorruptBlobError

LONGEST_S = 3600.0

_State = tuple[datetime, int] | None


@dataclass(slots=True)
class _Damage:
    """What is known of one object.

    Attributes:
        listed: When it was written and its size, before the last download; None: the bucket was not asked.
        due_s: When it is downloaded again if it does not change.
    """

    reason: str
    listed: _State = None
    tries: int = 0
    due_s: float = 0.0


class DamagedObjects:
    """See the module."""

    def __init__(
        self, store: ObjectStore, first_wait: timedelta, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._first_s, self._clock_s = store, first_wait.total_seconds(), clock_s
        self._lock = threading.Lock()
        self._found: dict[str, _Damage] = {}

    def refuse_unchanged(self, key: str) -> None:
        """Call it before a download that nobody waits for.

        CorruptBlobError if the object has not changed since its bytes were found wrong.
        """
        with self._lock:
            damage = self._found.get(key)
        if damage is None:
            return
        listed = next(
            ((info.modified, info.size_bytes) for info in self._store.list(key) if info.key == key), None
        )
        if listed == damage.listed and self._clock_s() < damage.due_s:
            raise CorruptBlobError(
                f"{damage.reason}; it is fetched again when it is written again, when somebody asks for it, "
                f"or within an hour"
            )
        damage.listed = listed

    def note(self, key: str, reason: str) -> None:
        """Note that a download had wrong bytes."""
        with self._lock:
            damage = self._found.setdefault(key, _Damage(reason))
            damage.reason = reason
            damage.due_s = self._clock_s() + min(self._first_s * 2.0 ** min(damage.tries, 32), LONGEST_S)
            damage.tries += 1

    def forget(self, key: str) -> None:
        """Note that the object is here."""
        with self._lock:
            self._found.pop(key, None)

    def forget_all(self) -> None:
        """Download each one again at its next try."""
        with self._lock:
            self._found.clear()
