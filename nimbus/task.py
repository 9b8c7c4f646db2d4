"""What a task's own code may ask of Nimbus: `from nimbus.task import context`.

Standard library only, so that a task pays nothing for it. Runs in the driver process of one attempt.

An attempt writes below `output`, a folder that is its own. The folder becomes visible to the tasks that
need this one only when the attempt's END record is accepted; so a zombie attempt may compute, but nobody
reads what it wrote. Effects elsewhere (a database, a mail) are at-least-once: give `fence_token` to
a store that can refuse an older one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

CONTEXT_VARIABLE = "NIMBUS_CONTEXT"
"""Environment variable with the path of the attempt's context document (JSON, schema 1)."""


class NotInATaskError(RuntimeError):
    """The code was started by hand, without the context a Nimbus driver gives."""

    def __init__(self) -> None:
        super().__init__(
            f"{CONTEXT_VARIABLE} is not set, so this code does not run as a Nimbus task. Start it with "
            f"`nimbus run start`, or point {CONTEXT_VARIABLE} at a context document to try it by hand."
        )


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
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Path]
    """Committed output folders of the tasks this one needs, by task name."""
    output: Path
    """This attempt's own output folder; it exists and is empty when the code starts."""
    release_root: Path
    """The release's files, read-only."""
    fence_token: str
    """Grows with each attempt of the task: `<attempt>`, zero-padded to sort as text."""


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
        parameters=document["parameters"],
        inputs={task: Path(place) for task, place in document["inputs"].items()},
        output=Path(document["output"]),
        release_root=Path(document["release_root"]),
        fence_token=f"{document['attempt']:06d}",
    )
