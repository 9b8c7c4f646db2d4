"""Keeps this scheduler's registration up to date. Thread `nimbus-registrar`.

It also reports readiness to the election, and quarantined pipelines to the engine. While another live
scheduler is registered with our id, this one is out of the lock queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

import structlog

from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.ids import PipelineName
from nimbus.domain.wording import shortened
from nimbus.ports import Registrations, SchedulerIdInUseError, StoreUnavailableError
from nimbus.scheduler.followers import Follower
from nimbus.telemetry.daemon import ReadinessMetrics

_log = structlog.get_logger(__name__)

REPORT_EVERY_S = 3.0
QUARANTINED_SHOWN = 500
"""Limit of quarantined pipelines in the registration, which must fit into one node. The engine gets all."""


class Registrar(Follower):
    """Publishes the registration after a change, on a new session, and every few seconds.

    Election and engine get their part first, so that they need no answer of the store.
    """

    def __init__(
        self,
        *,
        registrations: Registrations,
        info: Callable[[], SchedulerInfo],
        publish_readiness: Callable[[SchedulerInfo], None],
        quarantine: Callable[[Mapping[PipelineName, str]], None],
        stand: Callable[[bool], None],
        metrics: ReadinessMetrics,
    ) -> None:
        super().__init__("nimbus-registrar", REPORT_EVERY_S)
        self._registrations = registrations
        self._info = info
        self._publish_readiness = publish_readiness
        self._quarantine = quarantine
        self._stand = stand
        self._metrics = metrics
        self.id_taken = ""
        """Why another live scheduler is registered with our id; empty: none is, as far as we know."""
        self._told: tuple[bool, str, int, int] | None = None  # the readiness that the election has
        self._quarantined: tuple[int, Mapping[str, str]] | None = None  # those that the engine has
        self._clock_ahead_s: float | None = None
        self._stopping = False

    def report_once(self) -> None:
        """Report for the first time, on this thread. Without the store, the next report is the first one."""
        try:
            self._poll()
        except StoreUnavailableError as exc:
            _log.warning("first_report_delayed", error=str(exc))

    def draining(self) -> None:
        """Report from now on that this scheduler is stopping."""
        self._stopping = True
        self.wake()

    def _poll(self) -> None:
        try:
            self._report()
        except SchedulerIdInUseError as exc:  # perhaps of a lost process, whose session ends soon
            _log.error("scheduler_id_in_use", error=str(exc))
            self._id_is_taken(str(exc))

    def _clean_up(self) -> None:
        try:
            self._registrations.withdraw()
        except StoreUnavailableError as exc:
            _log.info("registration_left", error=str(exc))  # the end of the session removes it

    def _report(self) -> None:
        info = replace(self._info(), clock_ahead_s=self._clock_ahead_s)
        if self._stopping:
            info = replace(info, role=ElectionRole.STOPPING)
        self._metrics.reported(info)
        readiness = (info.ready, info.lacks, info.missing_count, info.missing_bytes)
        if readiness != self._told:  # an unready scheduler yields; becoming ready ends a back-off
            self._told = readiness
            self._publish_readiness(info)
        # In each term: the guard's answer at its start may be outdated. Not between terms: the report could
        # arrive after the next term's guard, and replace what that guard has found.
        if info.epoch is not None and (quarantined := (info.epoch, info.quarantined)) != self._quarantined:
            self._quarantined = quarantined
            self._quarantine({PipelineName(name): why for name, why in info.quarantined.items()})
        shown = {name: shortened(why) for name, why in islice(info.quarantined.items(), QUARANTINED_SHOWN)}
        written_at = self._registrations.publish_scheduler(replace(info, quarantined=shown))
        if written_at is not None:
            self._clock_ahead_s = (info.reported_at - written_at).total_seconds()
        self._id_is_taken("")

    def _id_is_taken(self, why: str) -> None:
        """Leave the lock queue, or, if `why` is empty, join it again, unless this scheduler stops."""
        if why == self.id_taken:
            return
        if not self._stopping:
            self._stand(not why)
        self.id_taken = why  # last: if the election refuses, the next poll repeats it
        self.wake()
