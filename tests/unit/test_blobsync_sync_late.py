"""`ensure` that runs out of time says what kept it, not only that it is late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync import LocalStoreError
from tests.sync_samples import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.stop()


def test_ensure_that_is_late_tells_the_failure_that_kept_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = rig.publish("p", a="1")
    failed, end, copy = threading.Event(), threading.Event(), rig.store.copy

    def hindered(*args: Any, **more: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise LocalStoreError("there is no room")
        end.wait(20)
        return copy(*args, **more)

    monkeypatch.setattr(rig.store, "copy", hindered)
    syncer = rig.syncer(start=False)
    try:
        with pytest.raises(LocalStoreError, match="there is no room"):
            syncer.ensure(ref, timedelta(milliseconds=500))
    finally:
        end.set()
