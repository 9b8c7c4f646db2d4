"""Names and ids as types, so that a run's id cannot be passed where a task's name is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

PipelineName = NewType("PipelineName", str)
TaskName = NewType("TaskName", str)
DatasetName = NewType("DatasetName", str)
RunId = NewType("RunId", str)
BackfillId = NewType("BackfillId", str)
WorkerId = NewType("WorkerId", str)
HostId = NewType("HostId", str)
"""One boot of one machine: process ids are unique only within it."""
ClusterId = NewType("ClusterId", str)
"""Identifies a cluster. Run ids are unique only within a cluster, above all those that schedules create."""
ReleaseDigest = NewType("ReleaseDigest", str)
"""SHA-256 of a release's manifest: 64 lower-case hexadecimal characters."""
CommandId = NewType("CommandId", str)

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")
"""For pipelines, tasks, datasets. No dot or slash: names are parts of paths, S3 keys and attempt ids."""
NAME_FORM = "1 to 63 of a-z, 0-9, _ and -, starting with a letter"
VARIABLE_PATTERN = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,62}")
"""For variables of the cluster: names that templates can write after a dot."""
RUN_ID_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,126}")
BACKFILL_ID_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,99}")
"""For backfills. The ids of their runs begin with it, so it is shorter."""
DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
COMMAND_ID_PATTERN = re.compile(r"cmd-[0-9]{1,20}(-[0-9]{4})?")
"""With a second number: one of the commands of a selection."""


class InvalidNameError(ValueError):
    """A name that came from outside does not have the form of its kind."""

    code = "invalid_name"

    def __init__(self, kind: str, text: str, form: str) -> None:
        super().__init__(f"{text!r} is not a valid {kind}: {form}.")


def pipeline_name(text: str) -> PipelineName:
    """Check a pipeline's name that came from outside."""
    if not NAME_PATTERN.fullmatch(text):
        raise InvalidNameError("name", text, NAME_FORM)
    return PipelineName(text)


def variable_name(text: str) -> str:
    """Check a variable's name that came from outside."""
    if not VARIABLE_PATTERN.fullmatch(text):
        raise InvalidNameError("variable name", text, "1 to 63 letters, digits and _, starting with a letter")
    if text in dir(dict):
        raise InvalidNameError("variable name", text, f"another one: vars.{text} means something else in SQL")
    return text


def run_id(text: str) -> RunId:
    """Check a run's id that came from outside."""
    if not RUN_ID_PATTERN.fullmatch(text):
        raise InvalidNameError("run id", text, "1 to 127 of a-z, 0-9, _ and -, starting with a letter")
    return RunId(text)


def backfill_id(text: str) -> BackfillId:
    """Check a backfill's id that came from outside."""
    if not BACKFILL_ID_PATTERN.fullmatch(text):
        raise InvalidNameError("backfill id", text, "1 to 100 of a-z, 0-9, _ and -, starting with a letter")
    return BackfillId(text)


def release_digest(text: str) -> ReleaseDigest:
    """Check a release's digest that came from outside."""
    if not DIGEST_PATTERN.fullmatch(text):
        raise InvalidNameError("release digest", text, "64 hexadecimal characters (0-9, a-f)")
    return ReleaseDigest(text)


def command_id(text: str) -> CommandId:
    """Check a command's id that came from outside: it becomes part of a path."""
    if not COMMAND_ID_PATTERN.fullmatch(text):
        raise InvalidNameError(
            "command id", text, "cmd- and 1 to 20 digits, as the answer to the command said"
        )
    return CommandId(text)


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One try at one task of one run. Written `run.task.number`; parts hold no dot."""

    run: RunId
    task: TaskName
    number: int

    def __str__(self) -> str:
        return f"{self.run}.{self.task}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """Read `run.task.number`. Raises InvalidNameError: the text has another form."""
        run, _, rest = text.partition(".")
        task, _, number = rest.partition(".")
        if not (
            RUN_ID_PATTERN.fullmatch(run)
            and NAME_PATTERN.fullmatch(task)
            and re.fullmatch(r"[1-9]\d{0,5}", number)
        ):
            raise InvalidNameError("attempt id", text, "run.task.number")
        return cls(RunId(run), TaskName(task), int(number))
