"""Publishes a worker's registration: that it is alive, and the state of its machine. Worker thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime

import psutil

from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipelines.pipeline import environment_label
from nimbus.ports import Clock, Registrations, WorkerIdInUseError
from nimbus.worker.data.folder_checks import why_not_ours
from nimbus.worker.host.free_room import lacking
from nimbus.worker.host.identity import host_id, hostname
from nimbus.worker.settings import WorkerSettings


class Registration:
    """One worker's registration."""

    def __init__(
        self,
        settings: WorkerSettings,
        registrations: Registrations,
        clock: Clock,
        submits: Iterable[str] = (),
    ) -> None:
        self._settings, self._registrations, self._clock = settings, registrations, clock
        self._submits = tuple(sorted(submits))
        self._started_at = clock.now()
        self._has_java = _has_java(settings)
        self.draining = False
        # For the fields of `WorkerInfo` with these names.
        self.orders_in_clusters = 0
        self.spark_jvms = ""
        self.jvm_releases: tuple[str, ...] = ()
        self.executor = ""
        self.unstored_logs = ""
        self.clock_ahead_s: float | None = None
        self._mark = ""
        self.stands = False
        """True if it was written in this session; false while another worker has our id."""

    def publish(self) -> None:
        """Write it. WorkerIdInUseError: a live worker elsewhere has this id. StoreUnavailableError."""
        now = self._clock.now()
        try:
            written_at = self._registrations.publish_worker(self._info(now))
        except WorkerIdInUseError:
            self.stands = False
            raise
        self.stands = True
        if written_at is not None:
            self.clock_ahead_s = (now - written_at).total_seconds()

    def publish_unless_taken(self) -> None:
        """Write it. If another worker has our id, the next heartbeat reports that."""
        try:
            self.publish()
        except WorkerIdInUseError:
            return

    def _foreign_data(self) -> str:
        if self._settings.data is not None:
            return ""
        return why_not_ours(self._settings.data_dir, self._recorded)

    def _recorded(self, mark: str) -> str:
        if not self._mark:
            self._mark = self._registrations.data_mark(mark)
        return self._mark

    def _info(self, now: datetime) -> WorkerInfo:
        environments = self._settings.environments
        usable = (name for name in sorted(environments) if not isinstance(environments[name], str))
        return WorkerInfo(
            id=self._settings.id,
            host=host_id(),
            hostname=hostname(),
            pid=os.getpid(),
            slots=self._settings.slots,
            version=self._settings.version,
            started_at=self._started_at,
            draining=self.draining,
            load_average=round(os.getloadavg()[0], 2),
            memory_available_bytes=psutil.virtual_memory().available,
            scheduler_id=self._settings.scheduler_id,
            newest_schema=NEWEST_SCHEMA,
            has_java=self._has_java,
            targets={name: target.slots for name, target in self._settings.targets.items()},
            submits=self._submits,
            orders_in_clusters=self.orders_in_clusters,
            labels=(*self._settings.labels, *map(environment_label, usable)),
            environments={
                name: environment if isinstance(environment, str) else environment.versions
                for name, environment in environments.items()
            },
            lacks=lacking(self._settings.min_free, self._settings.work_dir) or self._foreign_data(),
            spark_jvms=self.spark_jvms if self._has_java else "none without Java",
            jvm_releases=self.jvm_releases,
            executor=self.executor,
            unstored_logs=self.unstored_logs,
            clock_ahead_s=self.clock_ahead_s,
            reported_at=now,
        )


def _has_java(settings: WorkerSettings) -> bool:
    try:
        return settings.is_alone or settings.java_home is None or settings.java_home() is not None
    except NimbusError:
        return False
