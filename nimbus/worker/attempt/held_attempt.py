"""An attempt in the process that runs it: what a runner and an executor both do for `nimbus.attempt`."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from blobsync import BlobSyncError
from nimbus.attempt import model as m
from nimbus.domain.attempts.cost import Cost, cost_of
from nimbus.domain.attempts.slots import Claim, End, Holder, Slots
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.data.publications import Table
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard
from nimbus.result import ResultError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.limits import LimitWatch
from nimbus.worker.attempt.log import LimitedLog, log_tail
from nimbus.worker.attempt.verdict import REASON_LIMIT, Ending, judge
from nimbus.worker.data.parquet_columns import table_in
from nimbus.worker.data.ports import DataPlace, OutputRefusedError
from nimbus.worker.driver.files import measured
from nimbus.worker.host import procfs
from nimbus.worker.host.identity import host_id
from nimbus.worker.host.usage import Usage
from nimbus.worker.settings import RunnerPlan

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class HeldAttempt:
    """Performs instructions, and returns the events that answer them."""

    order: Assignment
    plan: RunnerPlan
    folder: AttemptFolder
    claim: Claim = field(init=False)
    """Ours; made before it is sent."""
    output: Path = field(init=False)
    """The local folder that the driver writes to; made before the driver starts."""
    started_at: datetime | None = None
    oom_kills: int = 0
    kept: tuple[Ending, str | None] | None = None
    """The ending of a success after its output was stored, or was not; and the output's reference."""
    record: End | None = None
    is_over: bool = False
    """A heartbeat or a checkpoint would belong to nothing, or to another's attempt."""
    outcome: Outcome | None = None
    """That of END, if it is filled."""
    claim_sent_s: float = m.NEVER_S
    """When our claim was first sent, since boot. That try may have succeeded."""
    used: Usage | None = None
    """What its processes used, after their end; None: not known."""
    measured: LimitWatch | None = None
    table: Table | None = None
    changed: Callable[[], None] | None = None

    @property
    def id(self) -> AttemptId:
        """The attempt's id."""
        return self.folder.attempt

    @property
    def exit_record(self) -> End:
        """The exit record of an attempt that has ended."""
        assert self.record is not None  # noqa: S101 - `Record` comes before
        return self.record

    def terms(
        self, *, claim_valid_s: float, stuck_after_s: float = m.NEVER_S, lease_s: float = m.NEVER_S
    ) -> m.Terms:
        """What is agreed for it."""
        timeout = self.order.timeout
        return m.Terms(
            timeout_s=m.NEVER_S if timeout is None else timeout.total_seconds(),
            stop_grace_s=self.plan.stop_grace_s,
            claim_valid_s=claim_valid_s,
            stuck_after_s=stuck_after_s,
            lease_s=lease_s,
            is_program=self.order.task.kind.is_program,
        )

    def new_claim(self, holder: Holder) -> Claim:
        """A claim that no other process has."""
        return Claim(
            attempt=self.order.attempt,
            worker=self.plan.worker,
            host=host_id(),
            holder=holder,
            claimed_at=datetime.now(UTC),
            nonce=secrets.token_hex(8),
            folder=str(self.folder.path),
        )

    # --- the board ---

    def claim_answered(self, standing: Claim | End | None) -> m.ClaimAnswered | m.AttemptGone:
        """`standing`: the claim on the board; None: the attempt is gone."""
        if not isinstance(standing, Claim):
            return m.AttemptGone()
        holder = self._holder_of(standing)
        if holder is not m.ClaimHolder.OURS:
            _log.warning("claim_refused", attempt=str(self.id), standing=str(standing))
        return m.ClaimAnswered(holder, self.claim_sent_s)

    def board_read(self, slots: Slots, asked_s: float) -> m.BoardRead:
        """`asked_s`: when the read began."""
        ended, holder = slots.end is not None, self._holder_of(slots.claim)
        read = m.BoardRead(holder, asked_s, ended, slots.stop_requested, slots.has_heartbeat)
        self.is_over |= read.is_useless
        return read

    def _holder_of(self, standing: Claim | None) -> m.ClaimHolder:
        if standing is None:
            return m.ClaimHolder.NONE
        return m.ClaimHolder.OURS if standing.nonce == self.claim.nonce else m.ClaimHolder.OTHER

    def write(self, board: AttemptBoard, instruction: m.SendHeartbeat | m.KeepCheckpoint) -> None:
        """Write a heartbeat or a checkpoint, unless it is over."""
        if self.is_over:
            return
        match instruction:
            case m.SendHeartbeat(progress):
                board.heartbeat(self.id, json.loads(progress))
            case m.KeepCheckpoint(checkpoint):
                board.keep_checkpoint(self.id, str(self.claim.nonce), checkpoint)

    def end_answered(self, standing: Claim | End | None) -> m.EndAnswered | m.AttemptGone:
        """`standing`: END on the board; None: the attempt is gone."""
        self.is_over = True
        if not isinstance(standing, End):
            return m.AttemptGone()
        self.outcome = standing.outcome
        return m.EndAnswered(f"END says {standing.outcome} by {standing.written_by}")

    # --- the driver ---

    def notes(self) -> m.NotesRead:
        """What the task's code has written."""
        return m.NotesRead(json.dumps(self.folder.progress()), self.folder.checkpoint())

    def to_be_told(self, why: m.Ordered) -> m.ToldToEnd:
        """See if the code has come to its end, before the driver gets the signal."""
        _log.warning("driver_asked_to_end", attempt=self.order.attempt, why=why.value)
        return m.ToldToEnd(self.folder.came_to_its_end())

    def limit_check(self, processes: Callable[[], Iterable[int]]) -> LimitCheck:
        """`processes`: returns the pids of all its processes."""
        limits = self.order.limits
        watch = LimitWatch(limits, processes=processes, folders=measured(self.folder, self.output))
        self.measured = watch
        return LimitCheck(watch, LimitedLog(self.folder.log, limits.log_bytes))

    # --- the end ---

    def commit(self, place: DataPlace, check: Callable[[], object] = lambda: None) -> m.Committed:
        """Store the output of a success. Any thread."""
        self.kept = committed(place, self.folder, self.output, check, published=self.order.publishes)
        if self.order.publishes and self.kept[1] is not None:
            self.table = table_in(self.output)
        return m.Committed(self.kept[0].reason)

    def ended(self, story: m.Story, written_by: str, application: str | None = None, jvm: str = "") -> End:
        """The exit record."""
        ending, reference = self.kept or (self._judge(story), None)
        return End(
            attempt=self.order.attempt,
            outcome=ending.outcome,
            written_by=written_by,
            ended_at=datetime.now(UTC),
            started_at=self.started_at,
            exit_code=ending.exit_code,
            failure=ending.failure,
            pipeline_at_fault=story.pipeline_at_fault,
            reason=ending.reason,
            output=reference,
            result=ending.result,
            table=self.table,
            checkpoint=None if ending.outcome is Outcome.SUCCEEDED else self.folder.checkpoint(),
            nonce=self.claim.nonce,
            application=application,
            jvm=jvm,
            cost=None if self.used is None else self._cost(self.used),
        )

    def _cost(self, used: Usage) -> Cost | None:
        peak = max(used.peak_memory_bytes, 0 if self.measured is None else self.measured.peak_bytes)
        spark = self.folder.spark_cost() if self.order.task.kind.uses_spark else {}
        return cost_of({**spark, "cpu_ms": used.cpu_ms, "peak_memory_bytes": peak})

    def _judge(self, story: m.Story) -> Ending:
        return judge(
            story,
            is_program=self.order.task.kind.is_program,
            timeout=self.order.timeout,
            log_tail=log_tail(self.folder),
            oom_killer=self.started_at is not None and procfs.oom_kills() > self.oom_kills,
        )


class LimitCheck:
    """Measures an attempt against its limits, and keeps its log within its limit.

    `measure` may hang, because it walks folders: another thread may call it than the other methods.
    """

    def __init__(self, watch: LimitWatch, log: LimitedLog) -> None:
        self._watch, self._attempt_log = watch, log
        self.measures = watch.is_needed
        self._frees_log = True

    def check(self) -> str | None:
        """Free the log's middle, and `measure`."""
        self.free_log()
        return self.measure()

    def measure(self) -> str | None:
        """Measure what is due; return why the attempt must be ended, or None."""
        try:
            return self._watch.check(time.monotonic())
        except Exception:  # noqa: BLE001 - a defect must not cost the attempt its log's limit
            _log.exception("limits_not_checked")
            return None

    def free_log(self) -> None:
        """Free the log's middle."""
        if not self._frees_log:
            return
        try:
            self._attempt_log.free_middle()
        except OSError as exc:
            self._frees_log = False
            _log.warning("log_not_limited", error=str(exc))


def committed(
    place: DataPlace,
    folder: AttemptFolder,
    output: Path,
    check: Callable[[], object],
    *,
    published: bool = False,
) -> tuple[Ending, str | None]:
    """Store the output of a success before its END, which is the commit of the attempt.

    The driver and all its descendants are dead, so the output does not change any more. The task's timeout
    does not apply. `check` raises OutputRefusedError if it may not be stored.

    Returns:
        The ending with the task's result, and the output's reference; a failure if the output cannot be
        stored, or the result is invalid.
    """
    try:
        success = Ending(Outcome.SUCCEEDED, "", 0, result=folder.result())
        check()
        return success, place.commit(output, folder.output_prefix(), folder.noted, published=published)
    except ResultError as exc:
        why = str(exc)
    except OSError as exc:
        why = f"its output could not be flushed to the disk: {exc.strerror}: {exc.filename}"
    except (BlobSyncError, OutputRefusedError) as exc:
        why = f"its output could not be stored: {exc}"
    readable = why.encode(errors="replace").decode()  # a name may contain any bytes
    return Ending(Outcome.FAILED, readable[:REASON_LIMIT], 0, FailureClass.ERROR), None
