"""Follows the catalog, so that active releases are on this disk before they are needed.

Thread `nimbus-catalog`: after a watch, it reads the catalog and gives the syncer the releases to fetch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from blobsync import ReleaseRef
from nimbus.domain.catalog import PipelineRecord, ReleaseOf, required_releases, wanted_releases
from nimbus.ports import Catalog, StoreUnavailableError
from nimbus.scheduler.signals import Signals

_log = structlog.get_logger(__name__)

LOOK_AGAIN_S = 10.0
"""Pause between reads without a watch, in case a watch was lost with its session."""


class CatalogFollower:
    """Keeps `required` up to date, and passes the releases to fetch to the syncer."""

    def __init__(
        self, catalog: Catalog, want: Callable[[Sequence[ReleaseRef]], None], changed: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._want = want
        self._changed = changed
        self._signals = Signals()
        self._records: tuple[PipelineRecord, ...] | None = None
        self._thread = threading.Thread(target=self._run, name="nimbus-catalog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: timedelta) -> None:
        """End the thread."""
        self._signals.end()
        if self._thread.ident is not None:  # else it was not started
            self._thread.join(timeout.total_seconds())

    def look(self) -> None:
        """Read the catalog again soon. Called by watches: only enqueues."""
        self._signals.look()

    @property
    def required(self) -> frozenset[ReleaseOf] | None:
        """Releases that leadership needs, as last seen; None before the first look."""
        records = self._records
        return None if records is None else required_releases(records)

    def _run(self) -> None:
        while True:
            try:
                self._follow(self._catalog.read(self.look))
            except StoreUnavailableError as exc:
                _log.warning("catalog_unavailable", error=str(exc))
            except Exception:  # noqa: BLE001 - the top of the thread: the next look may be luckier
                _log.exception("catalog_follower_failed")
            if self._signals.asked_to_end(LOOK_AGAIN_S):
                return

    def _follow(self, records: tuple[PipelineRecord, ...]) -> None:
        if records == self._records:
            return
        required = required_releases(records)  # first, because leadership waits for them
        rest = wanted_releases(records) - required
        self._want([ReleaseRef(r.pipeline, r.digest) for r in (*sorted(required), *sorted(rest))])
        self._records = records  # only after success, so that a failed look is repeated
        self._changed()
