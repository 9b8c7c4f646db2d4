"""What tasks publish: see `nimbus.domain.datasets`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from nimbus.domain.ids import DatasetName, TaskName

KEY_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""For keys of partitions: they are parts of paths and addresses."""


class Partitioning(StrEnum):
    """How a dataset is divided."""

    WHOLE = "whole"
    """It has one partition: each version replaces all of it."""
    INTERVAL = "interval"
    """By the data interval of the run."""
    KEY = "key"
    """By a text that the task names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A dataset that a task publishes when it succeeds."""

    dataset: DatasetName
    partition: Partitioning = Partitioning.WHOLE
    key: str = ""
    """Key of the partition: a template; in a run, its text. Empty for another partitioning."""
    of: TaskName | None = None
    """The task whose output is published, after this one has checked it; None: its own."""
    keep: timedelta | None = None
    """Age of a partition's end after which retention may take its outputs; None: they are kept."""
