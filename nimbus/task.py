"""The interface for the code of a task: `from nimbus.task import context`.

Standard library only, so that importing it costs little. Runs in the driver process of one attempt.

An attempt writes below `output`, its own folder. Its files become visible to dependent tasks only when the
attempt's END record is accepted. So a zombie attempt may compute, but no task reads its output. This is true
for outputs in a folder and for outputs in a bucket. Effects elsewhere (a database, a mail) are at-least-once.
Writes to tables are exactly once with `nimbus.tables`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from nimbus import checkpoint
from nimbus.domain.runs.run_number import write_version
from nimbus.result import FILE, encode

ACCESS_VARIABLE = "NIMBUS_DATA_ACCESS"
"""Environment variable with the access to the bucket of outputs, as JSON. Never written to a disk."""
CONTEXT_VARIABLE = "NIMBUS_CONTEXT"
"""Environment variable with the path of the attempt's context document (JSON, schema 1)."""


class NotInATaskError(RuntimeError):
    """The code runs without the context that a Nimbus driver provides."""

    def __init__(self) -> None:
        super().__init__(
            f"{CONTEXT_VARIABLE} is not set, so this code does not run as a Nimbus task. Start it with "
            f"`nimbus run start`, or point {CONTEXT_VARIABLE} at a context document to try it by hand."
        )


class OutsideError(RuntimeError):
    """Data from outside cannot be used in this way."""


@runtime_checkable
class ListedInputs(Protocol):
    """Inputs whose file names are known before the files are on this host."""

    def files(self, task: str) -> Iterable[PurePath]:
        """The files of the input of `task`, relative to that input."""


@dataclass(frozen=True)
class TaskContext:
    """The attempt of this process."""

    pipeline: str
    release: str
    """Digest of the release that the run is pinned to: 64 hexadecimal characters."""
    run_id: str
    task: str
    attempt: int
    """1 for the first attempt of the task in this run."""
    logical_date: datetime
    """The time that the run stands for, not its start. Aware, with the offset of the schedule's time zone."""
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Path]
    """Committed output folders of the tasks that this one needs, by task name. Inside a cluster, with outputs
    in a bucket, the first access to an input copies it."""
    output: Path
    """This attempt's own output folder; it exists and is empty when the code starts."""
    release_root: Path
    """The release's files, read-only."""
    fence_token: str
    """The attempt's number, zero-padded to sort as text. It grows with each attempt of the task in its run,
    and begins again with each run: `write_version` orders runs, too."""
    data_interval_start: datetime | None = None
    """Start of the data interval. None: the run was started by hand without one."""
    data_interval_end: datetime | None = None
    """End of the data interval, exclusive."""
    tz: str = "UTC"
    """IANA name of the schedule's time zone, or UTC."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Cluster variables that the pipeline's templates name, with their values when the run was created."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Where outputs are kept: `uri` of the place, and the names of `output` and `inputs` in it.

    `access` describes the access to a bucket: `endpoint_url`, `region`, if it is configured the `encryption`
    that writes must ask for and its `kms_key_id`, and, if the worker's configuration has credentials for the
    data alone, `access_key_id` and `secret_access_key`. Inside a cluster there are no
    such keys: a scheduler signs URLs instead. Empty: this context was written by hand.
    """
    read_inputs: Mapping[str, Path] = field(default_factory=dict, repr=False)
    """Outputs of the versions in `reads`, by `read:place`. Copied as `inputs`."""
    pinned: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The versions of datasets that this task reads, by read: see `reads`."""
    result_file: Path | None = None
    """File that `result` writes. A program writes its result there itself, as a JSON object."""
    checkpoint_file: Path | None = None
    """File that `checkpoint` writes. A program writes its checkpoint there itself, as JSON."""
    last_checkpoint: Any = None
    """The newest checkpoint that an earlier attempt of this task gave in this run; None: none did."""
    cluster: str = ""
    """Id of the cluster."""
    run_number: int = 0
    """A run that was created later, under whichever leader, has a larger one; 0: the run has none."""

    @property
    def write_key(self) -> str:
        """The same text for all attempts and runs that do this task for the same data interval.

        A task that divides its table in another way adds the name of the part that it replaces.
        """
        start, end = self.data_interval_start, self.data_interval_end
        interval = "" if start is None or end is None else f"{_in_utc(start)}_{_in_utc(end)}"
        return f"{self.cluster}/{self.pipeline}.{self.task}/{interval}"

    @property
    def write_version(self) -> int:
        """A number below 2**63 that a newer run, or a newer attempt of the same run, has larger.

        For a store that refuses the write of an older number.

        Raises:
            WriteVersionError: the attempt has none: 256 attempts of a run have one.
        """
        return write_version(self.run_number, self.attempt)

    @property
    def reads(self) -> Mapping[str, tuple[ReadVersion, ...]]:
        """What the task reads of datasets: versions in the order of their partitions, by read.

        They were pinned when the run began, and are the same for all of its attempts.
        """
        return {
            name: tuple(
                ReadVersion(
                    partition=version["partition"],
                    run=version["run"],
                    number=version["number"],
                    at=datetime.fromisoformat(version["at"]),
                    item=version.get("item"),
                    given=version.get("value"),
                    outside=version.get("outside") or "",
                    verified=bool(version.get("verified")),
                    sha256=version.get("sha256") or "",
                    input=f"{name}:{place}",
                    context=self,
                )
                for place, version in enumerate(versions)
            )
            for name, versions in self.pinned.items()
        }

    def result(self, **values: Any) -> None:
        """Set the task's result. Templates of other tasks read it as `tasks.NAME.result.KEY`.

        The result is committed if the attempt succeeds. A second call replaces the first.

        Args:
            values: Values that JSON can represent, 4096 bytes at most.

        Raises:
            ResultError: the values are too large, or not representable in JSON.
        """
        if self.result_file is None:
            raise NotInATaskError
        _replace(self.result_file, encode(values))

    def checkpoint(self, value: Any) -> None:
        """Set the checkpoint: the `last_checkpoint` of the next attempt of this task in this run.

        When this returns, the checkpoint is on this host, and outlives this process and its worker. About a
        second later it is in the cluster's store, and outlives the host. Any number of calls is allowed: each
        replaces the checkpoint before.

        Args:
            value: A value that JSON can represent, 4096 bytes at most.

        Raises:
            CheckpointError: the value is too large, or not representable in JSON.
        """
        if self.checkpoint_file is None:
            raise NotInATaskError
        _replace(self.checkpoint_file, checkpoint.encode(value))

    @property
    def output_uri(self) -> str:
        """URI of this attempt's output, for readers on other hosts: `file://...` or `s3://...`."""
        if not self.data:
            return f"file://{self.output}"
        return f"{self.data['uri']}/{self.data['output']}"

    def input_uri(self, task: str, path: str = "") -> str:
        """URI of an input, or of a file or folder in it: `file://...` or `s3://...`.

        A folder in a bucket may contain other files than the committed ones: see `input_files`.

        Args:
            task: One that this one needs.
            path: Relative to the input.
        """
        if self.data and self.data["uri"].startswith("s3://"):
            reference = self.data["inputs"][task]
            top = f"{self.data['uri']}/{reference.rpartition('/')[0]}"  # drops the name of its manifest
        else:
            top = f"file://{self._inputs_with(task)[task]}"
        return "/".join([top, *filter(None, [path.strip("/")])])

    def input_files(self, task: str, path: str = "") -> list[str]:
        """Sorted URIs of all committed files of an input, or of a folder in it. Copies nothing.

        Hidden files are left out, as in Spark: those with a part of their path that begins with `_` or `.`.

        Args:
            task: One that this one needs.
            path: Relative to the input.
        """
        below = PurePosixPath(path)
        files = (file for file in self._files(task) if below in file.parents)
        shown = (file for file in files if not any(part.startswith(("_", ".")) for part in file.parts))
        return sorted(self.input_uri(task, str(file)) for file in shown)

    def _files(self, task: str) -> Iterable[PurePath]:
        inputs = self._inputs_with(task)
        if isinstance(inputs, ListedInputs):
            return inputs.files(task)
        top = inputs[task]
        return (file.relative_to(top) for file in top.rglob("*") if file.is_file())

    def input_folder(self, name: str) -> Path:
        """The folder of an input: of a needed task, or `ReadVersion.input`."""
        return self._inputs_with(name)[name]

    def _inputs_with(self, task: str) -> Mapping[str, Path]:
        return self.read_inputs if ":" in task else self.inputs


@dataclass(frozen=True)
class ReadVersion:
    """One version of a dataset that a task reads."""

    partition: str
    """The interval, `2026-03-01T00:00:00Z_2026-03-02T00:00:00Z`; or the key; or empty: the whole dataset."""
    run: str
    """The run that published it; empty: it came from outside."""
    number: int
    """A later version of the same partition has a larger one."""
    at: datetime
    """When it was published."""
    input: str = field(repr=False)
    context: TaskContext = field(repr=False)
    item: Any = None
    """Of a read with `of`: the item of `for_each` whose child run published it."""
    given: Any = field(default=None, repr=False)
    """See `value`."""
    outside: str = ""
    """The URI of data from outside; empty: a run made it."""
    sha256: str = ""
    """Of data from outside, hexadecimal; empty: unverified. See `verified`."""
    verified: bool = False
    """Of data from outside: the worker has compared every byte with `sha256`."""

    @property
    def key(self) -> str:
        """The same as `partition`."""
        return self.partition

    @property
    def value(self) -> Any:
        """Of a read with `of`: the result of the task that published it, a mapping; empty: it gave none.

        Of data from outside: what came with them; None: nothing.

        Raises:
            LookupError: the results are not known: for another read, or because they are too large together.
        """
        if self.given is None and not self.outside:
            raise LookupError(
                f"{self.input}: no results: they are read by a read with `of` alone, if all of them together "
                "have 64 KiB at most; write what is larger into the outputs"
            )
        return self.given

    @property
    def path(self) -> Path:
        """Its folder. In a cluster, with outputs in a bucket, the first access copies it. Read-only.

        Of data from outside: their file or folder on this host. Raises OutsideError if they are elsewhere.
        """
        if not self.outside:
            return self.context.input_folder(self.input)
        if not self.outside.startswith("file:///"):
            raise OutsideError(f"{self.outside} is not on this host: open it by `uri`, with your own library")
        return Path(unquote(urlsplit(self.outside).path))

    @property
    def uri(self) -> str:
        """As `TaskContext.input_uri`."""
        return self.outside or self.context.input_uri(self.input)

    def files(self, path: str = "") -> list[str]:
        """As `TaskContext.input_files`. Of data from outside: the URI alone."""
        return [self.outside] if self.outside else self.context.input_files(self.input, path)


def _replace(file: Path, data: bytes) -> None:
    part = file.with_suffix(".part")
    part.write_bytes(data)
    part.replace(file)


_wrapped: Callable[[Mapping[str, Path]], Mapping[str, Path]] = dict


def wrap_inputs(wrap: Callable[[Mapping[str, Path]], Mapping[str, Path]]) -> None:
    """Make `context` pass inputs through `wrap`. For drivers whose inputs are not on their host yet."""
    global _wrapped  # noqa: PLW0603 - a process runs one attempt
    _wrapped = wrap


@cache
def context() -> TaskContext:
    """Read the context of the attempt that runs this process.

    Raises:
        NotInATaskError: the process does not run a task.
    """
    place = os.environ.get(CONTEXT_VARIABLE)
    if place is None:
        raise NotInATaskError
    document = json.loads(Path(place).read_text(encoding="utf-8"))
    places = {name: Path(place) for name, place in document["inputs"].items()}
    return TaskContext(
        pipeline=document["pipeline"],
        release=document["release"],
        run_id=document["run_id"],
        task=document["task"],
        attempt=document["attempt"],
        logical_date=datetime.fromisoformat(document["logical_date"]),
        data_interval_start=_time(document.get("data_interval_start")),
        data_interval_end=_time(document.get("data_interval_end")),
        tz=document.get("tz", "UTC"),
        parameters=document["parameters"],
        variables=document.get("variables", {}),
        inputs=_wrapped({name: place for name, place in places.items() if ":" not in name}),
        read_inputs=_wrapped({name: place for name, place in places.items() if ":" in name}),
        pinned=document.get("reads", {}),
        output=Path(document["output"]),
        data=_data(document),
        result_file=Path(place).parent / "work" / FILE,
        checkpoint_file=Path(place).parent / "work" / checkpoint.FILE,
        last_checkpoint=None if (last := document.get("checkpoint")) is None else json.loads(last),
        release_root=Path(document["release_root"]),
        fence_token=fence_token(document["attempt"]),
        cluster=document.get("cluster", ""),
        run_number=document.get("run_number", 0),
    )


def fence_token(attempt: int) -> str:
    """The fence token of an attempt number. Tokens sort as text in the order of the numbers."""
    return f"{attempt:06d}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _in_utc(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"  # noqa: UP017 - Python 3.9


def _data(document: Mapping[str, Any]) -> Mapping[str, Any]:
    access = os.environ.get(ACCESS_VARIABLE)
    data = document.get("data", {})
    return data if access is None else {**data, "access": json.loads(access)}
