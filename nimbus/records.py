"""Records as bytes: JSON with a schema number, checked when read.

Every stored record (ZooKeeper, history in S3, attempt folders) is encoded and decoded here. So a newer or
broken record is refused with the name of its place, and never understood in part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.main import IncEx

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment, WorkerInfo
from nimbus.domain.cluster.access import Principal, Token
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import Abdication, Command, CommandKey, CommandOutcome, KeyedCommand
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.outputs import TaskResults
from nimbus.domain.data.publications import Version
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.purge import Purged, PurgeOrder, RunNote
from nimbus.domain.runs.run import Run, RunHeader
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.due import Due

SCHEMA = 1
"""Schema number of most records. It is raised when a reader of the old form would misread the new one."""

_FIRST = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

T = TypeVar("T")


class UnreadableRecordError(NimbusError):
    """The bytes are no record of the expected kind, or of a newer schema."""

    code = "unreadable_record"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} cannot be read: {why}. It is left as it is.")
        self.place = place

    @classmethod
    def of(cls, place: str, exc: ValidationError) -> UnreadableRecordError:
        """The error about a record with a wrong or missing field, which it names."""
        first = exc.errors()[0]
        return cls(place, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


class Codec(Protocol[T]):
    """Turns records of one type into bytes and back."""

    def encode(self, record: T, /) -> bytes:
        """JSON, UTF-8, with the schema number."""

    def decode(self, data: bytes, place: str) -> T:
        """Read a record. Raises UnreadableRecordError if the bytes are none."""


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[T]):
    """Turns records of one type into bytes and back."""

    adapter: TypeAdapter[T]
    schema: int = SCHEMA
    sparse: bool = False
    """True: fields at their default are left out, so a default must keep its meaning. Saves room in the many
    records of attempts."""
    spans: str = ""
    """A field of intervals in order, which is written as numbers: there may be 256."""

    def encode(self, record: T, exclude: IncEx | None = None) -> bytes:
        """JSON, UTF-8, the schema number first. `exclude`: fields to leave out, as Pydantic spells them."""
        exclude = {self.spans} if self.spans else exclude
        body = self.adapter.dump_python(record, mode="json", exclude=exclude, exclude_defaults=self.sparse)
        if self.spans and (spans := getattr(record, self.spans)):
            body[self.spans] = _numbers(spans)
        rest = dict(sorted(body.items()))
        return json.dumps({"schema": self.schema, **rest}, separators=(",", ":")).encode()

    def decode(self, data: bytes, place: str) -> T:
        """Read a record.

        `place`: where it is stored, for the error message. Raises UnreadableRecordError: no JSON object,
        another schema, or fields that are missing or wrong.
        """
        try:
            body: dict[str, Any] = json.loads(data)
            schema = body.pop("schema")
            if schema != self.schema:
                raise UnreadableRecordError(
                    place, f"schema {schema}, and this version knows {self.schema}; upgrade it"
                )
            if self.spans in body:
                body[self.spans] = _spans(body[self.spans])
            return self.adapter.validate_python(body)
        except ValidationError as exc:
            raise UnreadableRecordError.of(place, exc) from exc
        except (ValueError, KeyError, AttributeError, TypeError, ArithmeticError, RecursionError) as exc:
            raise UnreadableRecordError(place, f"no JSON object with a schema number ({exc})") from exc


def _numbers(spans: Iterable[DataInterval]) -> list[int]:
    """Intervals as microseconds: for each, the time since the end before it, and its length."""
    numbers, before = list[int](), _FIRST
    for span in spans:
        numbers += ((span.start - before) // _MICROSECOND, (span.end - span.start) // _MICROSECOND)
        before = span.end
    return numbers


def _spans(stored: list[int]) -> list[DataInterval]:
    """What `_numbers` was given."""
    moments = [_FIRST + us * _MICROSECOND for us in accumulate(stored)]
    return [DataInterval(*pair) for pair in zip(moments[::2], moments[1::2], strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBody(RunHeader):
    """A run as it is stored."""

    tasks: dict[TaskName, TaskRun]


_HEADER_FIELDS = tuple(field.name for field in fields(RunHeader))
_RUN_BODY: RecordCodec[RunBody] = RecordCodec(TypeAdapter(RunBody))


class RunCodec:
    """Like `RecordCodec`, for runs: their tasks are pages in memory and a plain object in JSON."""

    def encode(self, run: Run) -> bytes:
        """JSON, UTF-8, with the schema number."""
        return _RUN_BODY.encode(RunBody(**_header(run), tasks=dict(run.tasks)))

    def decode(self, data: bytes, place: str) -> Run:
        """Read a run. UnreadableRecordError: see `RecordCodec.decode`."""
        body = _RUN_BODY.decode(data, place)
        return Run(**_header(body), tasks=Tasks(body.tasks.values()))


def _header(run: RunHeader) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _HEADER_FIELDS}


RUN = RunCodec()
DATASET: RecordCodec[Dataset] = RecordCodec(TypeAdapter(Dataset), sparse=True, spans="spans")
DUE: RecordCodec[Due] = RecordCodec(TypeAdapter(Due), sparse=True, spans="extents")
VERSION: RecordCodec[Version] = RecordCodec(TypeAdapter(Version), sparse=True)
BACKFILL: RecordCodec[Backfill] = RecordCodec(TypeAdapter(Backfill))
OUTCOME: RecordCodec[CommandOutcome] = RecordCodec(TypeAdapter(CommandOutcome))
ABDICATION: RecordCodec[Abdication] = RecordCodec(TypeAdapter(Abdication))
TERM: RecordCodec[Term] = RecordCodec(TypeAdapter(Term))
KEY: RecordCodec[KeyedCommand] = RecordCodec(TypeAdapter(KeyedCommand))
SETTINGS: RecordCodec[ClusterSettings] = RecordCodec(TypeAdapter(ClusterSettings))
ALERT: RecordCodec[Alert] = RecordCodec(TypeAdapter(Alert))
HEALTH: RecordCodec[PipelineHealth] = RecordCodec(TypeAdapter(PipelineHealth))
CLAIM: RecordCodec[Claim] = RecordCodec(TypeAdapter(Claim), sparse=True)
END: RecordCodec[End] = RecordCodec(TypeAdapter(End), sparse=True)
WORKER: RecordCodec[WorkerInfo] = RecordCodec(TypeAdapter(WorkerInfo))
SCHEDULER: RecordCodec[SchedulerInfo] = RecordCodec(TypeAdapter(SchedulerInfo))
RESULTS: RecordCodec[TaskResults] = RecordCodec(TypeAdapter(TaskResults))
PURGE_ORDER: RecordCodec[PurgeOrder] = RecordCodec(TypeAdapter(PurgeOrder))
PURGED: RecordCodec[Purged] = RecordCodec(TypeAdapter(Purged))
NOTE: RecordCodec[RunNote] = RecordCodec(TypeAdapter(RunNote))
ASSIGNMENT: RecordCodec[Assignment] = RecordCodec(TypeAdapter(Assignment), sparse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBody:
    """A command as it is stored; its id is the name of its node."""

    command: Command
    submitted_at: str
    submitted_by: str
    asked_by: Principal | None = None
    key: CommandKey | None = None
    if_match: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesBody:
    """Outcomes of commands, as they are kept in history."""

    refusals: tuple[CommandOutcome, ...] = ()
    accepted: tuple[CommandOutcome, ...] = ()


OUTCOMES: RecordCodec[OutcomesBody] = RecordCodec(TypeAdapter(OutcomesBody))
COMMAND: RecordCodec[CommandBody] = RecordCodec(TypeAdapter(CommandBody))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensBody:
    """Tokens, as they stand in a file of a scheduler."""

    tokens: tuple[Token, ...] = ()


TOKENS: RecordCodec[TokensBody] = RecordCodec(TypeAdapter(TokensBody))
