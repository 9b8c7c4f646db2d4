"""Creates the storage of outputs for a runner or executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from blobsync import ObjectStore
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.folder import FolderPlace
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.settings import RunnerPlan


def _no_store() -> NoReturn:
    raise AssertionError("paths need no store")


def place_of(plan: RunnerPlan, open_store: Callable[[], ObjectStore] = _no_store) -> DataPlace:
    """The storage for an attempt's output.

    Args:
        plan: The attempt's plan.
        open_store: See `nimbus.worker.connections.open_data`. Without it the place can only compute paths.
    """
    if plan.data_uri is None:
        return FolderPlace(plan.data_dir)
    return BucketPlace(plan.data_uri, plan.data_dir, open_store)
