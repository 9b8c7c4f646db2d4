"""What is brought together before a runner is launched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.ids import PipelineName, ReleaseDigest, WorkerId
from nimbus.worker.preparation import CannotRunHereError, prepare
from nimbus.worker.settings import RunnerPlan, WorkerSettings
from nimbus.worker.testing_bench import Bench


class CollectedAtOnce:
    """A release that is collected as soon as it is not pinned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def pinned(self, _pipeline: PipelineName, _digest: ReleaseDigest, _timeout: timedelta) -> Iterator[Path]:
        try:
            yield self._folder
        finally:
            shutil.rmtree(self._folder)

    def is_here(self, _pipeline: PipelineName, _digest: ReleaseDigest) -> bool:
        return self._folder.exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def prepared(bench: Bench, script: str) -> RunnerPlan:
    order = bench.order(script)
    settings = WorkerSettings(id=WorkerId("w1"), work_dir=bench.root / "w1", data_dir=bench.data)
    return prepare(order, settings, CollectedAtOnce(bench.release), bench.board.cluster())


def test_preparation_pins_the_release_while_it_reads_it_and_no_longer(bench: Bench) -> None:
    plan = prepared(bench, bench.script("task.py", ""))

    assert plan.release_root == bench.release
    assert not bench.release.exists()


def test_preparation_unpins_the_release_when_the_task_cannot_run_here(bench: Bench) -> None:
    with pytest.raises(CannotRunHereError, match=r"has no file missing\.py"):
        prepared(bench, "missing.py")

    assert not bench.release.exists()
