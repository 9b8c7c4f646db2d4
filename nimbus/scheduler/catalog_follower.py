"""Follows the catalog, so that active releases are on this disk before they are needed.

Thread `nimbus-catalog`: after a watch, it reads the catalog and gives the syncer the releases to fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blobsync import ReleaseRef
from nimbus.domain.catalog import PipelineRecord, ReleaseOf, required_releases, wanted_releases
from nimbus.ports import CatalogFeed
from nimbus.scheduler.follower import Follower

LOOK_AGAIN_S = 10.0
"""Pause between reads without a watch, in case a watch was lost with its session."""


class CatalogFollower(Follower):
    """Keeps `required` up to date, and passes the releases to fetch to the syncer."""

    def __init__(
        self, catalog: CatalogFeed, want: Callable[[Sequence[ReleaseRef]], None], changed: Callable[[], None]
    ) -> None:
        super().__init__("nimbus-catalog", LOOK_AGAIN_S)
        self._catalog = catalog
        self._want = want
        self._changed = changed
        self._records: tuple[PipelineRecord, ...] | None = None

    @property
    def required(self) -> frozenset[ReleaseOf] | None:
        """Releases that leadership needs, as last seen; None before the first look."""
        records = self._records
        return None if records is None else required_releases(records)

    def _look_now(self) -> None:
        records = self._catalog.read(self.look)
        if records == self._records:
            return
        required = required_releases(records)  # first, because leadership waits for them
        rest = wanted_releases(records) - required
        self._want([ReleaseRef(r.pipeline, r.digest) for r in (*sorted(required), *sorted(rest))])
        self._records = records  # only after success, so that a failed look is repeated
        self._changed()
