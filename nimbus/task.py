"""What a task's own code may ask of Nimbus: `from nimbus.task import context`.

Standard library only, so that a task pays nothing for it. Runs in the driver process of one attempt.

An attempt writes below `output`, a folder that is its own. What is in it becomes visible to the tasks that
need this one only when the attempt's END record is accepted; so a zombie attempt may compute, but nobody
reads what it wrote. That holds where outputs are kept in a folder and in a bucket. Effects elsewhere (a
database, a mail) are at-least-once: give `fence_token` to a store that can refuse an older one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Protocol, runtime_checkable

from nimbus import checkpoint
from nimbus.result import FILE, encode

ACCESS_VARIABLE = "NIMBUS_DATA_ACCESS"
"""Environment variable that says how the bucket of outputs is reached, as JSON. Not on any disk."""
CONTEXT_VARIABLE = "NIMBUS_CONTEXT"
"""Environment variable with the path of the attempt's context document (JSON, schema 1)."""


class NotInATaskError(RuntimeError):
    """The code was started by hand, without the context a Nimbus driver gives."""

    def __init__(self) -> None:
        super().__init__(
            f"{CONTEXT_VARIABLE} is not set, so this code does not run as a Nimbus task. Start it with "
            f"`nimbus run start`, or point {CONTEXT_VARIABLE} at a context document to try it by hand."
        )


@runtime_checkable
class ListedInputs(Protocol):
    """Inputs whose files are known before they are on this host."""

    def files(self, task: str) -> Iterable[PurePath]:
        """Relative to the input."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """One attempt, as its own code sees it."""

    pipeline: str
    release: str
    """Digest of the release that the run is pinned to: 64 hexadecimal characters."""
    run_id: str
    task: str
    attempt: int
    """1 for the first attempt of the task in this run."""
    logical_date: datetime
    """The time the run stands for, not when it runs. Aware, with the offset of the schedule's time zone."""
    data_interval_start: datetime | None = None
    """The data that the run stands for begins here. None: a run by hand that was given no data interval."""
    data_interval_end: datetime | None = None
    """It ends before this moment."""
    tz: str | None = None
    """IANA name of the schedule's time zone, or UTC. None: an earlier release made the run."""
    parameters: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the cluster: those that templates of the pipeline name, as they were when the run was made."""
    inputs: Mapping[str, Path]
    """Committed output folders of the tasks this one needs, by task name. Inside a cluster, with outputs in a
    bucket, each is copied when it is asked for first."""
    output: Path
    """This attempt's own output folder; it exists and is empty when the code starts."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Where outputs are kept: `uri` of the place, and what `output` and `inputs` are called in it.

    `access` says how a bucket is reached: `endpoint_url`, `region`, and, if the worker's configuration has
    some for the data alone, `access_key_id` and `secret_access_key`. Inside a cluster it has none of these:
    there a scheduler signs addresses for Nimbus. Empty: this context was written by hand.
    """
    result_file: Path | None = None
    """Where `result` leaves its values. A program writes its result there itself, as a JSON object."""
    checkpoint_file: Path | None = None
    """Where `checkpoint` leaves its value. A program writes it there itself, as JSON."""
    last_checkpoint: Any = None
    """What the last attempt of this task that gave a checkpoint in this run gave last; None: none did."""
    release_root: Path
    """The release's files, read-only."""
    fence_token: str
    """Grows with each attempt of the task: `<attempt>`, zero-padded to sort as text."""

    def result(self, **values: Any) -> None:
        """Give the task's result, which templates of other tasks take as `tasks.NAME.result.KEY`.

        It counts if the attempt succeeds. A second call replaces the first.

        Args:
            values: What JSON can say, 4096 bytes at most.

        Raises:
            ResultError: they are too large, or nothing that JSON can say.
        """
        if self.result_file is None:
            raise NotInATaskError
        _replace(self.result_file, encode(values))

    def checkpoint(self, value: Any) -> None:
        """Give what the next attempt of this task in this run begins with: its `last_checkpoint`.

        On return it is on this host, and outlives this process and its worker. About a second later it is
        with the cluster, and outlives the host. Call it as often as you like: the last one counts.

        Args:
            value: What JSON can say, 4096 bytes at most.

        Raises:
            CheckpointError: it is too large, or nothing that JSON can say.
        """
        if self.checkpoint_file is None:
            raise NotInATaskError
        _replace(self.checkpoint_file, checkpoint.encode(value))

    @property
    def output_uri(self) -> str:
        """Where this attempt's output is to lie, for readers on other hosts: `file://...` or `s3://...`."""
        if not self.data:
            return f"file://{self.output}"
        return f"{self.data['uri']}/{self.data['output']}"

    def input_uri(self, task: str, path: str = "") -> str:
        """Where an input lies, or a file or folder in it: `file://...` or `s3://...`.

        A folder in a bucket may hold more than was committed: see `input_files`.

        Args:
            task: One that this one needs.
            path: Relative to the input.
        """
        top = f"file://{self.inputs[task]}"
        if self.data:
            top = f"{self.data['uri']}/{self.data['inputs'][task]}"
        if top.startswith("s3://"):
            top = top.rpartition("/")[0]  # what is left out is the name of its manifest
        return "/".join([top, *filter(None, [path.strip("/")])])

    def input_files(self, task: str, path: str = "") -> list[str]:
        """URIs of all committed files of an input, or below a folder in it, sorted. Copies nothing.

        Hidden ones are left out: those of which a name begins with `_` or `.`, as Spark has it.

        Args:
            task: One that this one needs.
            path: Relative to the input.
        """
        below = PurePosixPath(path)
        files = (file for file in self._files(task) if below in file.parents)
        shown = (file for file in files if not any(part.startswith(("_", ".")) for part in file.parts))
        return sorted(self.input_uri(task, str(file)) for file in shown)

    def _files(self, task: str) -> Iterable[PurePath]:
        if isinstance(self.inputs, ListedInputs):
            return self.inputs.files(task)
        top = self.inputs[task]
        return (file.relative_to(top) for file in top.rglob("*") if file.is_file())


def _replace(file: Path, data: bytes) -> None:
    part = file.with_suffix(".part")
    part.write_bytes(data)
    part.replace(file)


_wrapped: Callable[[Mapping[str, Path]], Mapping[str, Path]] = dict


def wrap_inputs(wrap: Callable[[Mapping[str, Path]], Mapping[str, Path]]) -> None:
    """Have `context` pass inputs through `wrap`. For drivers whose inputs are not on their host yet."""
    global _wrapped  # noqa: PLW0603 - of the one attempt that this process runs
    _wrapped = wrap


@cache
def context() -> TaskContext:
    """Read the context of the attempt that runs this process.

    Raises:
        NotInATaskError: the process is no task.
    """
    place = os.environ.get(CONTEXT_VARIABLE)
    if place is None:
        raise NotInATaskError
    document = json.loads(Path(place).read_text(encoding="utf-8"))
    return TaskContext(
        pipeline=document["pipeline"],
        release=document["release"],
        run_id=document["run_id"],
        task=document["task"],
        attempt=document["attempt"],
        logical_date=datetime.fromisoformat(document["logical_date"]),
        data_interval_start=_time(document.get("data_interval_start")),
        data_interval_end=_time(document.get("data_interval_end")),
        tz=document.get("tz"),
        parameters=document["parameters"],
        variables=document.get("variables", {}),
        inputs=_wrapped({task: Path(place) for task, place in document["inputs"].items()}),
        output=Path(document["output"]),
        data=_data(document),
        result_file=Path(place).parent / "work" / FILE,
        checkpoint_file=Path(place).parent / "work" / checkpoint.FILE,
        last_checkpoint=None if (last := document.get("checkpoint")) is None else json.loads(last),
        release_root=Path(document["release_root"]),
        fence_token=fence_token(document["attempt"]),
    )


def fence_token(attempt: int) -> str:
    """Of an attempt by its number: texts that are ordered as the numbers are."""
    return f"{attempt:06d}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _data(document: Mapping[str, Any]) -> Mapping[str, Any]:
    access = os.environ.get(ACCESS_VARIABLE)
    data = document.get("data", {})
    return data if access is None else {**data, "access": json.loads(access)}
