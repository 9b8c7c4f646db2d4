"""A worker's report about itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import WorkerId
from nimbus.java import JavaMissingError
from nimbus.worker.environments import FoundEnvironment, TaskEnvironment
from nimbus.worker.registration import Registration
from nimbus.worker.settings import WorkerSettings
from tests.nimbus.worker_bench import RecordingRegistrations


def test_only_a_worker_that_is_alone_does_not_look_for_java_at_its_start(tmp_path: Path) -> None:
    """The check starts a JVM; and a single worker gets tasks that need Java in any case."""
    looks: list[bool] = []
    for is_alone in (False, True):

        def java_home(is_alone: bool = is_alone) -> Path:
            looks.append(is_alone)
            raise JavaMissingError(())

        told = RecordingRegistrations()
        settings = WorkerSettings(
            id=WorkerId("w"),
            work_dir=tmp_path,
            data_dir=tmp_path,
            java_home=java_home,
            is_alone=is_alone,
        )
        Registration(settings, told, SystemClock()).publish()
        assert told.workers[-1].has_java is is_alone
    assert looks == [False]


def test_registration_says_how_far_the_clock_is_ahead_of_the_stores(tmp_path: Path) -> None:
    class StoreBehind(RecordingRegistrations):
        def publish_worker(self, info: WorkerInfo) -> datetime | None:
            super().publish_worker(info)
            assert info.reported_at is not None
            return info.reported_at - timedelta(seconds=900)

    told = StoreBehind()
    settings = WorkerSettings(id=WorkerId("w"), work_dir=tmp_path, data_dir=tmp_path, is_alone=True)
    registration = Registration(settings, told, SystemClock())
    registration.publish()
    registration.publish()

    assert [worker.clock_ahead_s for worker in told.workers] == [None, 900]
    assert registration.clock_ahead_s == 900


def test_worker_has_the_label_of_each_environment_that_can_be_used_and_tells_why_of_the_others(
    tmp_path: Path,
) -> None:
    found = FoundEnvironment(
        configured=TaskEnvironment(name="site", python=tmp_path),
        python=(3, 12),
        spark="",
        versions="Python 3.12",
    )
    board = RecordingRegistrations()
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=tmp_path,
        data_dir=tmp_path,
        labels=("gpu",),
        environments={"site": found, "old": "it cannot be run"},
    )

    Registration(settings, board, SystemClock()).publish()

    assert board.workers[0].labels == ("gpu", "environment:site")
    assert board.workers[0].environments == {"site": "Python 3.12", "old": "it cannot be run"}
