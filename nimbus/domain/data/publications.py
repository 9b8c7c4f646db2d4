"""What tasks publish and read: see `nimbus.domain.data.datasets`, `nimbus.domain.data.reads`.

What a field with the name of a key means is told once, at the key in `nimbus.definition.models`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.ids import AttemptId, CommandId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval

KEY_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""For keys of partitions: they are parts of paths and addresses."""

NO_SOURCE = AttemptId(RunId(""), TaskName(""), 0)
MAX_VALUE_BYTES = 512
"""Limit of `OutsideData.value` as JSON: a record keeps 40 versions and more."""


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
    keep: timedelta | None = None
    keep_versions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A dataset that a run reads: the versions for its data interval, unless it says otherwise."""

    name: str
    """Name under which tasks find it."""
    dataset: DatasetName
    latest: bool = False
    """Of a dataset by interval: its last partition, whatever the run's interval."""
    new: bool = False
    """Only what was published since the last success of its pipeline."""
    last: timedelta | None = None
    key: str = ""
    """Of a dataset by key: the partition; empty: all of them. A template; in a run, its text."""
    optional: bool = False
    of: TaskName | None = None
    """Only what the child runs of this task have published: see `nimbus.domain.runs.child_runs`."""
    starts: bool = False
    """True: its changes start runs, because its pipeline starts by data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A dataset that takes versions from outside: see `OutsideData`."""

    dataset: DatasetName
    partition: Partitioning
    keep: timedelta | None = None
    keep_versions: int = 1
    senders: tuple[str, ...] = ()
    """Principals and teams that may publish it; empty: every operator."""

    def fault_of(self, partition: str) -> str:
        """Why a partition cannot be published; empty: it can."""
        match self.partition:
            case Partitioning.WHOLE:
                return "it is not divided: name no interval and no key" if partition else ""
            case Partitioning.INTERVAL:
                return "" if interval_in(partition) else "it is by interval: name the interval"
            case Partitioning.KEY:
                is_key = KEY_PATTERN.fullmatch(partition) and not interval_in(partition)
                return "" if is_key else "it is by key: name the key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns of a published table."""

    columns: Mapping[str, str]
    """Types as in Spark SQL, by name; `partition`: only the names of folders have it."""
    more: int = 0
    """How many more columns it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideData:
    """Data that no task made: a command named them."""

    uri: str
    sha256: str = ""
    """Of its bytes, hexadecimal; empty: nobody can verify them."""
    value: Any = None
    """What the command gave to readers, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A command that made a version."""

    command: CommandId
    by: str
    """Name of the requester; empty: not known."""
    reason: str = ""
    withdrew: int = 0
    """Of a withdrawal: the number under which the wrong content was published."""
    restored: int = 0
    """Of a withdrawal: the number under which its own content was published."""
    made_at: datetime | None = None
    """Of a withdrawal: when its own content was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One published output. It never changes."""

    partition: str
    """Key, or interval as `interval_text` writes it; empty for a dataset that is not divided."""
    number: int
    """That of the run, or command, that published it: a larger one replaces a smaller one."""
    sequence: int = 0
    """Above that of every version that any dataset has got before, also of one with a larger number."""
    run: RunId = NO_SOURCE.run
    """Empty: it came from outside, so there are no task, source and output."""
    task: TaskName = NO_SOURCE.task
    """The task that published it."""
    source: AttemptId = NO_SOURCE
    """The attempt that made the output."""
    output: str | None = None
    """Reference of the output, as of `Attempt.output`; None: it has a result alone."""
    at: datetime
    """When its task succeeded, or the command was done."""
    keep: timedelta | None = None
    """As of `KeepKeys.partitions`."""
    keep_versions: int = 1
    """As of `KeepKeys.versions`; that of the newest version counts."""
    item: Any = None
    """Pinned by a read with `of`: the item of the child run that published it."""
    value: Mapping[str, Any] | None = None
    """Pinned by a read with `of`: the result of `task`; None: the values are too large together."""
    outside: OutsideData | None = None
    change: Change | None = None
    """The command that made it; None: its run did."""

    @property
    def made_at(self) -> datetime:
        """When its content was published first: a withdrawal makes nothing new."""
        return self.at if self.change is None else self.change.made_at or self.at

    @property
    def carried_bytes(self) -> int:
        """The size of what it carries: item, value, URI. Of most versions nothing, and of others 2.5 kB."""
        carried = [part for part in (self.item, self.value) if part is not None]
        if self.outside is not None:
            carried += [self.outside.uri, self.outside.value]
        return len(json.dumps(carried)) if carried else 0

    def may_go(self, now: datetime) -> bool:
        """True when the partition is so old that retention may take it, although nothing has replaced it."""
        if self.keep is None:
            return False
        interval = interval_in(self.partition)
        return now - (self.at if interval is None else interval.end) > self.keep


def interval_text(interval: DataInterval) -> str:
    """An interval as the name of a partition, in UTC; such names have the order of time."""
    return f"{moment_text(interval.start)}_{moment_text(interval.end)}"


def moment_text(moment: datetime) -> str:
    """The beginning of the name of a partition: whole seconds, so that names have the order of time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def interval_in(partition: str) -> DataInterval | None:
    """The interval that a partition's name tells; None: it is a key, or names the whole."""
    start, _, end = partition.partition("_")
    try:
        return DataInterval(start=_moment(start), end=_moment(end))
    except ValueError:
        return None


def _moment(text: str) -> datetime:
    if not text.endswith("Z"):
        raise ValueError(text)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def content_of(version: Version) -> int:
    """The number under which its content was first published: a withdrawal publishes content again."""
    restored = 0 if version.change is None else version.change.restored
    return restored or version.number


def earlier(current: Version, known: Iterable[Version]) -> list[Version]:
    """Versions of a partition that can take the place of the current one, the newest first.

    What was withdrawn does not come back, under whatever number it was published before its withdrawal: a
    sender may have published it twice, or a rerun have reused the attempt that made it.
    """
    known = tuple(known)
    first = {version.number: version for version in known if content_of(version) == version.number}
    changes = [(version.number, version.change) for version in known if version.change is not None]
    gone = [(current.number, current)]
    gone += [(at, first[change.withdrew]) for at, change in changes if change.withdrew in first]
    fitting = [
        number
        for number, version in first.items()
        if number < content_of(current)
        and not any(
            number < at and (version.source, version.outside) == (wrong.source, wrong.outside)
            for at, wrong in gone
        )
    ]
    return [first[number] for number in sorted(fitting, reverse=True)]
